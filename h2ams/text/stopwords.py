"""Words that say nothing about the subject of a question (Pure). Left out of queries only.

All lists are folded as in ``scripts.fold``. A word that is a function word in one language and a
word with content in English (``die``, ``war``, ``son``) is left out only where the query shows
no English function word and one of another language: see ``stop_words``.
"""

from __future__ import annotations

from collections.abc import Iterable

_ENGLISH = """
a an the this that these those there here
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
she her hers herself it its itself they them their theirs themselves one ones
am is are was were be been being do does did doing done have has had having
will would shall should can could may might must ought cannot
and or but nor not no so if then else than as because while until although though unless whether
of at by for with about against between into through during before after above below to from up
down in out on off over under again further upon within without among across toward towards onto
via per near
what which who whom whose when where why how
all any both each few more most other others some such only own same too very just also even still
yet ever never always already quite rather much many lot lots
dont doesnt didnt isnt arent wasnt werent wont wouldnt cant couldnt shouldnt hasnt havent hadnt
im ive id youre youve theyre theyve weve hes shes thats whats wheres whos lets
please tell let got get gets getting anyone anything someone something everyone everything
"""

_GERMAN = """
der die das den dem des ein eine einen einem einer eines kein keine keinen und oder aber sondern
ich du er sie es wir ihr mich dich sich uns euch mir dir ihm ihnen mein meine meinen meiner dein
deine sein seine seinen seiner unser unsere euer ihre ihren ihrer
ist sind war waren bin bist seid wird werden wurde wurden hat haben hatte hatten habe kann koennen
konnen muss mussen soll sollen darf will wollen
nicht nur noch schon auch sehr so wie als wenn weil dass ob denn doch mal hier dort da
in im an am auf aus bei beim mit nach von vom vor zu zum zur uber unter fur durch gegen ohne um bis
was wer wen wem wessen wann wo wohin woher warum wieso weshalb welche welcher welches welchen
dieser diese dieses diesen diesem jeder jede jedes man
"""

_FRENCH = """
le la les un une des du de au aux ce cet cette ces et ou mais donc or ni car
je tu il elle on nous vous ils elles me te se lui leur leurs moi toi soi eux y en
mon ma mes ton ta tes son sa ses notre nos votre vos
est sont etait etaient suis es sommes etes ete etre fut sera seront ai as a avons avez ont avait
avaient avoir fait faire peut peuvent
ne pas plus que qui quoi dont ou quand comment pourquoi combien quel quelle quels quelles
dans sur sous par pour avec sans chez vers entre si comme tout tous toute toutes tres aussi
"""

_SPANISH = """
el la los las un una unos unas lo al del de y e o u ni pero sino aunque
yo tu el ella ello nosotros vosotros ellos ellas me te se nos os le les mi mis tu tus su sus
nuestro nuestra nuestros nuestras vuestro
es son era eran fue fueron ser soy eres somos esta estan estaba estaban estar ha han habia haber
hay he has hemos tiene tienen
no si ya muy mas menos tambien como cuando donde quien quienes que cual cuales cuanto cuantos
por para con sin sobre entre hasta desde en a ante bajo segun tras porque
este esta esto estos estas ese esa eso esos esas aquel aquella
"""

_RUSSIAN = """
и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее мне было
вот от меня еще нет о об из ему теперь когда даже ну вдруг ли если уже или ни быть был него до вас
нибудь опять уж вам ведь там потом себя ничего ей может они тут где есть надо ней для мы тебя их чем
была сам чтоб чтобы без будто чего раз тоже себе под будет ж тогда кто этот того потому этого какой
какая какое какие каком какую какого каких совсем ним здесь этом почти мой моя мои моего тем нее
сейчас были куда зачем почему сказать всех никогда можно при наконец два другой хоть после над
больше тот через эти нас про всего них много разве эту впрочем хорошо свою этой перед иногда лучше
чуть том нельзя такой им более всегда конечно всю между это мои наш наша наши ваш твой свой который
которая которое которые которого которой сколько откуда чей чья чьи каким какими каков какова каково
каковы кого кому кем ком чему является являются этой этом эти который была будут лишь именно
какому какою какими такая такое такие такого такому таком таких такими таким этих этими этому этою
тех теми той тому та те та собой собою себе котором которую которым которых которому которыми
некоторые некоторых некоторым некоторыми могут можете можем мог могла могли нами вами ими ней нею
ваша ваше ваши вашего вашей вашим своя свое свои своего своей своих своим чьего чьему чьим были
"""

# Function words elsewhere that carry meaning in an English question.
_AMBIGUOUS = """
die war man hat son sin ton car era bin dem den des sans pour mal sur par plus comme fait sera fut
este ob los las la el ha lo de se si te un me da dort sous ante ser pas entre en et est y e u o
"""


def _set(*lists: str) -> frozenset[str]:
    return frozenset(word for each in lists for word in each.split())


_FOREIGN = _set(_GERMAN, _FRENCH, _SPANISH)
_SURE = _set(_ENGLISH, _RUSSIAN) | (_FOREIGN - _set(_AMBIGUOUS))
_ONLY_ENGLISH = _set(_ENGLISH) - _FOREIGN
_ONLY_FOREIGN = _FOREIGN - _set(_AMBIGUOUS, _ENGLISH)

# Pairs of dense scripts that ask or bind, and characters of which any pair only binds.
_DENSE_PAIRS = """
什么 怎么 怎样 为什 如何 哪里 哪个 哪些 哪儿 谁的 我们 你们 他们 她们 它们
这个 那个 这些 那些 这里 那里 一个 多少 是否 可以 以及 或者 但是 因为 所以
如果 没有 不是 还是 就是 已经 关于 请问 請問 什麼 怎麼 為什 我們 你們 他們
這個 那個 沒有 因為 有多 是多 了多 多大 何时 時候 时候 几个 哪一 在第
です ます まし した して から まで こと もの これ それ あれ この その あの ここ
そこ どこ どれ どの なに なぜ いつ だれ ない いる ある する れる った って とい
いう には では とは でも ので のは のが のを すか ませ せん てい られ くだ ださ
무엇 어떻 떻게 누가 언제 어디 입니 니다 니까 하는 있는 에서 으로 습니 합니 했습
"""
_DENSE_STOP_PAIRS = _set(_DENSE_PAIRS)
_DENSE_ASKING_CHARS = frozenset("什么哪谁吗呢麼誰嗎")  # any pair with one of them only asks
_DENSE_STOP_CHARS = frozenset(
    "的了吗呢吧啊是在和与及或也都就还被把给对从到很之其这那有不我你他她它們个個们嗎這"
    "はがをにでとのもへやかねよわだ"
)


def stop_words(folded: Iterable[str]) -> frozenset[str]:
    """Those of the ``folded`` words of one query that say nothing about its subject."""
    words = frozenset(folded)
    sure = words & _SURE
    if sure & _ONLY_FOREIGN and not sure & _ONLY_ENGLISH:
        return sure | (words & _FOREIGN)
    return sure


def dense_stop(token: str) -> bool:
    """Whether a character or pair of a dense script only asks or binds."""
    if token in _DENSE_STOP_PAIRS:
        return True
    characters = set(token)
    return characters <= _DENSE_STOP_CHARS or not characters.isdisjoint(_DENSE_ASKING_CHARS)
