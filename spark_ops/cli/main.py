"""The command `spark-ops` parses the command line and runs the command's module.

Nothing but the standard library is imported before a command runs: `show` and `apply` start without Spark.
Exit codes: 0 done or healthy, 1 findings or steps that did not succeed, 2 an invalid command line or file,
3 too little is known, 4 a requirement is missing or failed, 141 the reader of the output has closed it (spark §5).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from spark_ops.cli.errors import OpsError

COMMANDS: Final = {
    "collect": "turn the telemetry segments of a node into Parquet files",
    "compact": "merge small files and delete old ones",
    "rollup": "summarise hours of telemetry, so that later jobs read less",
    "health": "report the problems of a cluster",
    "forecast": "forecast memory, disk and file descriptors",
    "plan": "find moves that balance a cluster, and write them as a plan",
    "show": "print a plan",
    "diff": "compare two plans",
    "simulate": "simulate a plan, also with nodes that die during it",
    "apply": "carry out a plan",
    "pause": "pause a plan after its current steps",
    "resume": "continue a plan",
    "abort": "end a plan",
    "rollback": "write the plan that undoes what a plan did",
    "report": "write a report about health and a plan, or about the effect of a plan",
    "doctor": "check that this machine has what spark-ops needs",
}
"""The commands and their help texts. Each is a module of `spark_ops.cli` of that name, with `add_arguments(parser)`
and `run(arguments) -> int`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns: the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="spark-ops", description="Health and rebalance plans of Fluffle clusters."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    chosen = next((word for word in given if not word.startswith("-")), None)
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what.capitalize() + ".")
        if name == chosen:  # the others need not be imported
            import_module(f"spark_ops.cli.{name}").add_arguments(command)
    arguments = parser.parse_args(given)
    try:
        code = int(import_module(f"spark_ops.cli.{arguments.command}").run(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `spark-ops plan … | head` has closed its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OpsError as error:
        print(f"spark-ops {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
