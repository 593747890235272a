"""The command line tools print overviews, usages, and why a command does not exist."""

import sys
from typing import Final, TextIO

from node.cli.ctl.formats import BOLD, PLAIN
from node.cli.ctl.tools import Tool, commands_of
from node.operations.operation import EX_USAGE

_GENERAL: Final = """
{bold}General Options{plain}

The following options are accepted by most or all commands.

short            | long          | description
-----------------|---------------|--------------------------------
-?               | --help        | displays command help
-n <node>        | --node <node> | connect to node <node>
                 | --data <dir>  | connect to the node with this data directory
-l               | --longnames   | use long host names
-t               | --timeout <n> | for commands that support it, operation timeout in seconds
-q               | --quiet       | suppress informational messages
-s               | --silent      | suppress informational messages
                                 | and table header row
-p               | --vhost       | for commands that are scoped to a virtual host,
                 |               | virtual host to use
                 | --formatter   | alternative result formatter to use
                                 | if supported: json, pretty_table, table, csv, erlang
"""

_SECTIONS: Final = (
    "Help",
    "Nodes",
    "Cluster",
    "Replication",
    "Users",
    "Access Control",
    "Monitoring, observability and health checks",
    "Parameters",
    "Policies",
    "Virtual hosts",
    "Configuration and Environment",
    "Definitions",
    "Federation",
    "Feature flags",
    "Operations",
    "Queues",
    "Shovel",
    "Upgrade",
    "Plugin Management",
    "Deprecated",
)


def usage(tool: Tool, name: str) -> str:
    """Return the line that says how a command is used."""
    command = commands_of(tool)[name]
    options = "[--node <node>] [--data <dir>] [--longnames] [--quiet]"
    return f"{tool.program} {options} {name} {command.usage}".rstrip()


def print_help(tool: Tool, name: str) -> None:
    """Print the help of one command."""
    command = commands_of(tool)[name]
    print(f"\n{BOLD}Usage{PLAIN}\n\n{usage(tool, name)}\n\n{command.help}.\n")
    if command.columns:
        print(
            f"{BOLD}Arguments and Options{PLAIN}\n\n"
            f"<column>\n\tmust be one of {', '.join(sorted(command.columns))}"
        )
    print(_GENERAL.format(bold=BOLD, plain=PLAIN))


def print_overview(tool: Tool, file: TextIO) -> None:
    """Print the commands of a tool."""
    print(f"\n{BOLD}Usage{PLAIN}\n", file=file)
    print(
        f"{tool.program} [--node <node>] [--data <dir>] [--timeout <timeout>] [--longnames] [--quiet]"
        " <command> [<command options>]\n",
        file=file,
    )
    print("Available commands:", file=file)
    mine = {name: each for name, each in commands_of(tool).items() if tool.name in each.tools}
    width = max(map(len, mine)) + 1
    sections = sorted({command.section for command in mine.values()}, key=_SECTIONS.index)
    for section in sections:
        print(f"\n{BOLD}{section}{PLAIN}:\n", file=file)
        for name, command in sorted(mine.items()):
            if command.section == section:
                print(f"   {name:<{width}} {command.help}", file=file)
    print(f"\nUse '{tool.program} help <command>' to learn more about a specific command", file=file)


def tell_unknown(tool: Tool, name: str) -> int:
    """Print why a command does not exist. Returns: the exit code."""
    import difflib

    from node.cli.ctl.commands import ERLANG_ONLY, NOT_BUILT, OTHER_WAY

    if name in ERLANG_ONLY:
        print(f"\nCommand '{name}' needs Erlang, and there is none in this broker.\n", file=sys.stderr)
        return EX_USAGE
    if name in OTHER_WAY:
        print(f"\nCommand '{name}' is not needed: {OTHER_WAY[name]}.\n", file=sys.stderr)
        return EX_USAGE
    if name in NOT_BUILT:
        print(f"\nCommand '{name}' is RabbitMQ's, and this version does not have it yet.\n", file=sys.stderr)
        return EX_USAGE
    print(f"\nCommand '{name}' not found. ", file=sys.stderr)
    closest = difflib.get_close_matches(name, commands_of(tool), n=1, cutoff=0.7)
    if closest:
        print(f"Did you mean '{closest[0]}'? \n", file=sys.stderr)
    else:
        print_overview(tool, sys.stderr)
    return EX_USAGE
