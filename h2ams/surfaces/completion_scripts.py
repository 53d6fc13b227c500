r"""The completion scripts of bash, zsh and fish as text (Pure), from the list of commands.

Each script holds every command and option; values it asks for with ``completion values``. Nothing
of what comes back is run: bash and zsh quote it, fish takes it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option with all its names; ``takes_value``: the next word belongs to it."""

    names: tuple[str, ...]
    takes_value: bool
    about: str


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command with the options that it has besides those of every command."""

    name: str
    about: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """All that can be completed without asking."""

    commands: tuple[CommandWords, ...]
    everywhere: tuple[Option, ...]

    @property
    def skipped(self) -> list[str]:
        """The names of the options before a command that take the next word."""
        taken = [each for each in self.everywhere if each.takes_value]
        return [name for each in taken for name in each.names if name != "--user"]


def _names(options: Iterable[Option]) -> list[str]:
    return [name for each in options for name in each.names]


# -- bash ------------------------------------------------------------------------------------------

_BASH = r"""# bash completion of h2ams; made by: h2ams completion bash
_h2ams() {
    local IFS=$' \t\n' before=${COMP_LINE:0:COMP_POINT} after=${COMP_LINE:COMP_POINT}
    local piece joined i at command='' options current found
    local -a words=() behind=()
    # bash cuts words at = and : too; here a word ends at a blank
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        joined=$before
        before=${before#"${before%%[![:blank:]]*}"}
        ((i == COMP_CWORD)) && piece=$before
        if [[ $joined == "$before" && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$piece
        else
            words+=("$piece")
        fi
        before=${before#"$piece"}
    done
    read -r -a behind <<<"${after#"${after%%[[:blank:]]*}"}"
    at=$((${#words[@]} - 1))
    current=${words[at]}
    for ((i = 1; i < at; i++)); do
        case ${words[i]} in
            @SKIPPED@) ((i++)) ;;
            -*) ;;
            *) command=${words[i]}; break ;;
        esac
    done
    options='@EVERYWHERE@'
    case $command in
@CASES@
    esac
    COMPREPLY=()
    if [[ $current == -* && $current != *=* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
        return
    fi
    if [[ -z $command && $i -eq $at && $current != -* ]]; then
        COMPREPLY=($(compgen -W '@COMMANDS@' -- "$current"))
        return
    fi
    while IFS= read -r found; do
        case $found in
            :files | :folders)
                [[ $found == :files ]] && piece=-f || piece=-d
                type compopt >/dev/null 2>&1 && compopt -o filenames
                current=${current#--*=}
                while IFS= read -r found; do COMPREPLY+=("$found"); done \
                    < <(compgen "$piece" -- "$current")
                return ;;
        esac
        # only what follows the last = or : is replaced
        found=${found#"${current%"$2"}"}
        COMPREPLY+=("$(printf '%q' "$found")")
    done < <(command "${words[0]/#\~/$HOME}" completion values --at=$((at - 1)) -- \
        "${words[@]:1}" "${behind[@]}" 2>/dev/null)
}
complete -F _h2ams h2ams
"""


def bash(program: Program) -> str:
    """The script for bash 3.2 and newer."""
    cases = "\n".join(
        f"        {each.name}) options+=' {' '.join(_names(each.options))}' ;;"
        for each in program.commands
        if each.options
    )
    return (
        _BASH.replace("@SKIPPED@", " | ".join(program.skipped))
        .replace("@EVERYWHERE@", " ".join(_names(program.everywhere)))
        .replace("@COMMANDS@", " ".join(each.name for each in program.commands))
        .replace("@CASES@", cases)
    )


# -- zsh -------------------------------------------------------------------------------------------

_ZSH = r"""#compdef h2ams
# zsh completion of h2ams; made by: h2ams completion zsh
_h2ams() {
    local i command=''
    local -a offered found
    for ((i = 2; i < CURRENT; i++)); do
        case $words[i] in
            (@SKIPPED@) ((i++)) ;;
            (-*) ;;
            (*) command=$words[i]; break ;;
        esac
    done
    if [[ $PREFIX == -* && $PREFIX != *=* ]]; then
        offered=(
@EVERYWHERE@
        )
        case $command in
@CASES@
        esac
        _describe -o option offered
        return
    fi
    if [[ -z $command && $i -eq $CURRENT && $PREFIX != -* ]]; then
        offered=(
@COMMANDS@
        )
        _describe command offered
        return
    fi
    found=("${(@f)$(command "${(Q)words[1]/#\~/$HOME}" completion values --at=$((CURRENT - 2)) -- \
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" "${(@Q)words[CURRENT+1,-1]}" 2>/dev/null)}")
    found=(${found:#})
    case $found[1] in
        (:files) compset -P '--*='; _files ;;
        (:folders) compset -P '--*='; _files -/ ;;
        (*) (($#found)) && compadd -- $found ;;
    esac
}
if [[ $funcstack[1] == _h2ams ]]; then
    _h2ams "$@"
else
    compdef _h2ams h2ams
fi
"""


def zsh(program: Program) -> str:
    """The script for zsh, to be sourced or put into ``fpath`` as ``_h2ams``."""

    def described(name: str, about: str) -> str:
        return "'" + f"{name}:{about}".replace("'", r"'\''") + "'"

    def lines(options: Iterable[Option], indent: int) -> str:
        shown = (described(name, each.about) for each in options for name in each.names)
        return "\n".join(" " * indent + each for each in shown)

    cases = "\n".join(
        f"            ({each.name}) offered+=(\n{lines(each.options, 16)}\n            ) ;;"
        for each in program.commands
        if each.options
    )
    commands = "\n".join(" " * 12 + described(each.name, each.about) for each in program.commands)
    return (
        _ZSH.replace("@SKIPPED@", "|".join(program.skipped))
        .replace("@EVERYWHERE@", lines(program.everywhere, 12))
        .replace("@COMMANDS@", commands)
        .replace("@CASES@", cases)
    )


# -- fish ------------------------------------------------------------------------------------------

_FISH = r"""# fish completion of h2ams; made by: h2ams completion fish
function __h2ams_command
    set -l skip 0
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case @SKIPPED@
                set skip 1
            case '-*'
            case '*'
                echo $word
                return
        end
    end
    test $skip = 0
    or echo :
end
function __h2ams_is
    set -l command (__h2ams_command)
    test "$command" = "$argv[1]"
end
function __h2ams_values
    set -l before (commandline -opc)
    set -l line (commandline -op)
    set -l current (commandline -ct)
    set -l behind $line[(math (count $before) + 1)..-1]
    if test -n "$current"
        set -e behind[1]
    end
    set -l at (math (count $before) - 1)
    set -l words $before[2..-1] "$current" $behind
    set -l found (command $before[1] completion values --at=$at -- $words 2>/dev/null)
    switch "$found"
        case :files
            __fish_complete_path (string replace -r -- '^--[^=]*=' '' $current)
        case :folders
            __fish_complete_directories (string replace -r -- '^--[^=]*=' '' $current)
        case '*'
            string replace -r -- '^--[^=]*=' '' $found
    end
end
complete -c h2ams -e
complete -c h2ams -f
complete -c h2ams -n 'not __h2ams_is ""' -a '(__h2ams_values)'
"""


def fish(program: Program) -> str:
    """The script for fish 3."""

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def line(option: Option, condition: str) -> str:
        names = "".join(
            f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
            for name in option.names
        )
        value = " -x -a '(__h2ams_values)'" if option.takes_value else ""
        return f"complete -c h2ams{condition}{names}{value} -d {quoted(option.about)}"

    lines = [
        f"complete -c h2ams -n '__h2ams_is \"\"' -a {each.name} -d {quoted(each.about)}"
        for each in program.commands
    ]
    lines += [line(each, "") for each in program.everywhere]
    for each in program.commands:
        lines += [line(option, f" -n '__h2ams_is {each.name}'") for option in each.options]
    head = _FISH.replace("@SKIPPED@", " ".join(program.skipped))
    return head + "\n".join(lines) + "\n"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
