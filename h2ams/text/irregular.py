"""English words whose forms no stemmer brings together: ``took``, ``children`` (Pure).

Only forms that hardly ever are another word: ``rose``, ``ground`` and ``bound`` are left alone.
"""

from __future__ import annotations

_FORMS = """
arose arisen arise | awoke awoken awake | beaten beat | became become | began begun begin
bent bend | bitten bite | bled bleed | blew blown blow | bred breed | broke broken break
brought bring | built build | burnt burn | bought buy | caught catch | chose chosen choose
clung cling | came come | crept creep | dealt deal | dug dig | drew drawn draw | dreamt dream
drank drunk drink | drove driven drive | ate eaten eat | fell fallen fall | fed feed | felt feel
fought fight | found find | fled flee | flew flown fly | forbade forbidden forbid
forgot forgotten forget | forgave forgiven forgive | froze frozen freeze | gave given give
went gone go | grew grown grow | hung hang | heard hear | hid hidden hide | held hold | kept keep
knelt kneel | knew known know | laid lay | led lead | leapt leap | learnt learn | left leave
lent lend | lost lose | lit light | made make | meant mean | met meet | paid pay | proven prove
rode ridden ride | rang rung ring | risen rise | ran run | said say | saw seen see | sought seek
sold sell | sent send | sewn sew | shook shaken shake | shone shine | shot shoot | shown show
shrank shrunk shrink | sang sung sing | sank sunk sink | sat sit | slept sleep | slid slide
spoke spoken speak | sped speed | spent spend | spilt spill | spun spin | stood stand
stole stolen steal | stuck stick | stung sting | struck strike | swore sworn swear | swept sweep
swollen swell | swam swum swim | swung swing | took taken take | taught teach | tore torn tear
told tell | thought think | threw thrown throw | understood understand
undertook undertaken undertake | undid undone undo | woke woken wake | wore worn wear
wove woven weave | wept weep | won win | withdrew withdrawn withdraw | wrote written write
overcame overcome | oversaw overseen oversee | rebuilt rebuild | rewrote rewritten rewrite
mistook mistaken mistake | misunderstood misunderstand | upheld uphold | withheld withhold
foresaw foreseen foresee | outgrew outgrown outgrow | overthrew overthrown overthrow
dying died die | lying lied lie | tying tied tie
children child | men man | women woman | people person | mice mouse | feet foot | teeth tooth
geese goose | wives wife | knives knife | shelves shelf | wolves wolf | thieves thief
loaves loaf | halves half
"""


def _table() -> dict[str, str]:
    groups = (line.split() for part in _FORMS.split("\n") for line in part.split("|"))
    return {form: group[-1] for group in groups for form in group[:-1]}


LEMMAS = _table()  # form -> the word that it is a form of, both folded
