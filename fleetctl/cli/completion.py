"""`fleetctl completion SHELL`, and the completion of model keys and labels from the fleet files on the command line.

The shell calls this at every press of Tab, so it never raises, reads no standard input and contacts no cluster.

Each script runs the program with the line up to the cursor. The program answers every shell in typer's format for fish:
a value and its help per line, with the help wrapped at COLUMNS. No answer is evaluated: model keys are untrusted text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetctl.cli.commands import command_app
from fleetctl.cli.console import write_document

if TYPE_CHECKING:
    from fleetctl.fleetfile.resolved import ResolvedModel

app = command_app(
    "source <(fleetctl completion bash)                      # in ~/.bashrc",
    'fleetctl completion zsh > "${fpath[1]}/_fleetctl"',
    "fleetctl completion fish > ~/.config/fish/completions/fleetctl.fish",
    exit_codes="0 printed, 64 usage")
BASH = r"""# bash completion for fleetctl; load it with: source <(fleetctl completion bash)
_fleetctl() {
    local line=${COMP_LINE:0:COMP_POINT} current=${COMP_WORDS[COMP_CWORD]} word before breaks='' cut='' reply
    word=${line##*[[:space:]]} before=${line%"${line##*[[:space:]]}"}
    while [[ $before == *\\[[:space:]] ]]; do  # an escaped blank is a part of the word
        reply=${before%?} reply=${reply##*[[:space:]]}
        word=$reply${before:(-1)}$word before=${before%"$reply"?}
    done
    # Bash splits words at : and = and replaces only the last part, so the rest is cut from each reply.
    word=${word#-*=}
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+==
    if [[ -n $breaks && $current != [\'\"]* ]]; then
        cut=${word%"${word##*[$breaks]}"} cut=${cut//\\/}
    fi
    # A word that ends with a blank inside quotes is still being typed: no further argument is asked for.
    [[ $current == [\'\"]* ]] && line=${line%"${line##*[![:space:]]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r reply _; do
        [[ -n $reply ]] || continue
        [[ $reply == */ ]] && compopt -o nospace
        reply=${reply#"$cut"}
        case $current in
            \'*) reply=${reply//\'/"'\''"} ;;
            \"*) reply=${reply//\\/\\\\} reply=${reply//\"/\\\"} reply=${reply//\$/\\\$} reply=${reply//\`/\\\`} ;;
            *) printf -v reply '%q' "$reply" ;;
        esac
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
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
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
    set -l flag (string match --regex -- '^--[^=]*=' (commandline --cut-at-cursor --current-token))
    set -l offered (fleetctl 2>/dev/null)
    if test -z "$offered"
        set offered (__fish_complete_path (string replace -- "$flag" '' (commandline --cut-at-cursor --current-token)))
    end
    printf '%s\n' "$flag"$offered
end
complete --command fleetctl --no-files --arguments '(__fleetctl_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]
) -> int:
    """Print the completion script for a shell.

    It completes commands, flags, model keys and labels. Keys and labels come from the fleet files that -f names earlier
    on the line.
    """
    write_document(SCRIPTS[shell])
    return 0


def complete_model_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the model keys that begin with `incomplete`; none if the files cannot be read."""
    keys = [model.key for model in _models(ctx)]
    return [key for key in keys if key.startswith(incomplete) and key.isprintable()]


def complete_labels(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the labels of the models, as KEY=VALUE, that begin with `incomplete`."""
    labels = {f"{key}={value}" for model in _models(ctx) for key, value in model.labels.items()}
    return sorted(label for label in labels if label.startswith(incomplete))


def complete_replicas(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return MODEL/ for each model key; only the cluster knows the ids."""
    return [f"{key}/" for key in complete_model_keys(ctx, incomplete)]


def _models(ctx: typer.Context) -> tuple[ResolvedModel, ...]:
    """Return the models of the fleet files named so far; none if they cannot be read."""
    sources = [source for source in ctx.params.get("files") or () if source != "-"]
    if not sources:
        return ()

    from fleetctl.fleetfile.load import load_fleet  # slow, and every command imports this module

    try:
        return load_fleet(sources).models
    except Exception:  # noqa: BLE001  a broken file must not break the shell
        return ()
