"""A node with the watchdog of the fault loops, as a program that can be forked (tests/kit/fork_server.py).

    python -m tests.chaos.watched_node start …        as `python -m node start …`

A node that runs copied code has the watchdog from its PYTHONPATH instead, since it cannot be forked.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import node.cli.main

WATCHDOG: Final = Path(__file__).with_name("watchdog")
"""The folder of the module that an interpreter imports when it starts, if the folder is in its PYTHONPATH."""


def main(arguments: Sequence[str]) -> int:
    """Run the node's command under the watchdog. Returns: the exit code."""
    importlib.import_module("tests.chaos.watchdog.sitecustomize")  # it watches as soon as it is imported
    return node.cli.main.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
