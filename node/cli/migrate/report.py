"""`fluffle migrate report`: what came in and went out at both ends, by queue."""

import argparse
import json

from node.cli.migrate.command import EX_OK, EX_REFUSED
from node.cli.migrate.looking import session
from node.cli.migrate.state import now_text
from node.migrate.report import report, report_json, report_text


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Returns: 1 if some message is not accounted for."""
    found = session(arguments)
    found.append(*found.samples(found.look(is_light=True)))
    made, at = report(found.history), now_text()
    print(json.dumps(report_json(made, at), indent=1) if arguments.json else report_text(made, at), end="")
    if arguments.json:
        print()
    return EX_OK if made.is_even else EX_REFUSED
