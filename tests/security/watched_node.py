"""A node under an audit hook that notes what no node may do: unpickle, start programs, run code made of text.

    python -m tests.security.watched_node NOTES start …      `fluffle start …`; what was noted stands in the file NOTES

Python raises audit events (PEP 578) in C, where nothing that runs in the process can go around them. Modules that are
imported are code that is executed, and some of the standard library's make classes by `exec`. That is nobody's input,
so `exec`, `compile` and `marshal` count when our own code does it.
"""

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])

NEVER = frozenset(
    {
        "pickle.find_class",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "subprocess.Popen",
    }
)
"""No part of a node does these, libraries included."""

OURS = frozenset({"exec", "compile", "marshal.load", "marshal.loads"})
"""Our own files don't do these."""

OUR_FOLDERS = tuple(os.path.join(ROOT, name, "") for name in ("node", "cluster"))


def watch(notes: str) -> None:
    """Note each such event as a line of a file: the event, who did it, its first arguments."""
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in NEVER and event not in OURS:
            return
        who = sys._getframe(1).f_code.co_filename
        if event in OURS and not who.startswith(OUR_FOLDERS):
            return
        os.write(file, f"{event} by {who}: {arguments[:2]!r:.200}\n".encode(errors="replace"))

    sys.addaudithook(hook)


def main() -> int:
    """See the module. Returns: the node's exit code."""
    notes, *arguments = sys.argv[1:]
    watch(notes)
    from node.cli.main import main as fluffle

    return fluffle(arguments)


if __name__ == "__main__":
    sys.exit(main())
