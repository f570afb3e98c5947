"""The scripts that `fleetctl completion` prints. Each asks the program, with the line up to the cursor, for what fits.

The program answers in the form it has for fish, a value and its help per line, whichever shell asks; it wraps the help
at COLUMNS. No answer is evaluated: model keys are text from a file that anybody may have written.
"""

from __future__ import annotations

BASH = r"""# bash completion for fleetctl; load it with: source <(fleetctl completion bash)
_fleetctl() {
    local line=${COMP_LINE:0:COMP_POINT} current=${COMP_WORDS[COMP_CWORD]} word breaks='' cut='' reply
    word=${line##*[[:space:]]}
    # Bash ends words at : and = and replaces only the part after the last one, so the rest is cut from each reply.
    word=${word#-*=}
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+==
    if [[ -n $breaks && $current != [\'\"]* ]]; then
        cut=${word%"${word##*[$breaks]}"}
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r reply _; do
        [[ -n $reply ]] || continue
        [[ $reply == */ ]] && compopt -o nospace
        reply=${reply#"$cut"}
        [[ $current == [\'\"]* ]] || printf -v reply '%q' "$reply"
        COMPREPLY+=("$reply")
    done < <(_FLEETCTL_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args COLUMNS=9999 \
        _TYPER_COMPLETE_ARGS="$line" "$1" 2>/dev/null)
}
complete -o default -F _fleetctl fleetctl
"""

ZSH = r"""#compdef fleetctl
# zsh completion for fleetctl; put it into a folder of $fpath as _fleetctl, or: source <(fleetctl completion zsh)
_fleetctl() {
    local -a whole begun
    local offered help
    while IFS=$'\t' read -r offered help; do
        case $offered in
            '') ;;
            */) begun+=("$offered") ;;
            *) whole+=("$offered") ;;
        esac
    done < <(_FLEETCTL_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args COLUMNS=9999 \
        _TYPER_COMPLETE_ARGS="${(j: :)words[1,CURRENT]}" "${words[1]}" 2>/dev/null)
    (( ${#whole} )) && compadd -a whole
    (( ${#begun} )) && compadd -S '' -a begun
    (( ${#whole} + ${#begun} )) || _files
}
if [[ ${funcstack[1]} == _fleetctl ]]; then
    _fleetctl "$@"
else
    compdef _fleetctl fleetctl
fi
"""

FISH = r"""# fish completion for fleetctl; put it into ~/.config/fish/completions/fleetctl.fish
function __fleetctl_complete
    set -lx _FLEETCTL_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION get-args
    set -lx COLUMNS 9999
    set -lx _TYPER_COMPLETE_ARGS (commandline --cut-at-cursor --current-process)
    fleetctl 2>/dev/null
end
complete --command fleetctl --arguments '(__fleetctl_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""By the name of the shell."""
