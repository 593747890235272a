"""`fluffle completion bash|zsh|fish` prints a script with which a shell completes commands and options.

    source <(fluffle completion bash)                                           # in ~/.bashrc
    source <(fluffle completion zsh)                                            # in ~/.zshrc
    fluffle completion fish > ~/.config/fish/completions/fluffle.fish

The words are in the script: completing starts no Python.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_fluffle_words() {{
  case "$1" in
{cases}
  esac
}}
_fluffle() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" tool=""
  case "${{COMP_WORDS[0]##*/}}" in
{links}
    *) [ "$COMP_CWORD" -gt 1 ] && tool="${{COMP_WORDS[1]}}" ;;
  esac
  COMPREPLY=($(compgen -W "$(_fluffle_words "$tool")" -- "$word"))
}}
complete -o default -F _fluffle {programs}
"""
_ZSH: Final = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def add_parser(commands: "argparse._SubParsersAction[Any]", parser: argparse.ArgumentParser) -> None:
    """Add the command and its arguments.   parser: the parser of all commands."""
    own = commands.add_parser("completion", help="print a script for completion in a shell")
    own.add_argument("shell", choices=SHELLS)
    own.set_defaults(run=lambda arguments: _run(arguments.shell, parser))


def _run(shell: str, parser: argparse.ArgumentParser) -> int:
    words = words_of(parser)
    print(fish(words) if shell == "fish" else (_ZSH if shell == "zsh" else "") + bash(words), end="")
    return 0


def words_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the words that may follow each command of `fluffle`; under the empty name the commands themselves."""
    from node.cli.ctl.tools import TOOLS, commands_of

    [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    words = {"": sorted(commands.choices)}
    for name, each in commands.choices.items():
        words[name] = sorted(option for action in each._actions for option in action.option_strings)
        words[name] += sorted(
            choice for action in each._actions for choice in action.choices or () if isinstance(choice, str)
        )
    words["cluster"] += ["start", "status", "stop"]
    for name, tool in TOOLS.items():
        mine = {name: each for name, each in commands_of(tool).items() if tool.name in each.tools}
        options = {f"--{option}" for each in mine.values() for option in each.options}
        words[name] = sorted(mine) + sorted(options | _OF_TOOLS)
    return words


_OF_TOOLS: Final = frozenset(
    {
        "--node",
        "--data",
        "--timeout",
        "--vhost",
        "--formatter",
        "--quiet",
        "--silent",
        "--longnames",
        "--help",
    }
)


def bash(words: Mapping[str, Sequence[str]]) -> str:
    """Return the script for bash, and for zsh with its emulation of bash's completion."""
    from node.cli.ctl.tools import LINKS

    cases = "\n".join(f"    '{name}') echo '{' '.join(each)}' ;;" for name, each in sorted(words.items()))
    links = "\n".join(f"    {link}) tool={name} ;;" for link, name in LINKS.items())
    return _BASH.format(cases=cases, links=links, programs=" ".join(["fluffle", *LINKS]))


def fish(words: Mapping[str, Sequence[str]]) -> str:
    """Return the script for fish."""
    lines = [f"complete -c fluffle -n __fish_use_subcommand -f -a '{' '.join(words[''])}'"]
    for name, each in sorted(words.items()):
        if name and each:
            lines.append(f"complete -c fluffle -n '__fish_seen_subcommand_from {name}' -a '{' '.join(each)}'")
    return "\n".join(lines) + "\n"
