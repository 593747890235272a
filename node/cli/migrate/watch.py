"""`fluffle migrate watch`: messages at both ends, rates, and the time that is left, again and again."""

import argparse
import json
import sys
import time
from typing import Final

from node.cli.migrate.command import EX_OK
from node.cli.migrate.looking import session
from node.cli.migrate.state import now_text
from node.migrate.progress import Pace, progress, progress_json, progress_text

SAMPLE_S: Final = 30.0
"""The journal gets a sample so often while it is watched."""

SAMPLED_MAX_BYTES: Final = 1 << 26
"""A journal that is larger gets no more samples while it is watched: each look reads all of it, and it has a limit."""

_CLEAR: Final = "\x1b[H\x1b[2J"


def run(arguments: argparse.Namespace) -> int:
    """Show the progress until nothing is left at the source, or until interrupted."""
    found, pace, sampled_s = session(arguments), Pace(), float("-inf")
    while True:
        now_s = time.monotonic()
        move = found.look(is_light=True)
        shown = progress(move, pace, now_s)
        if now_s - sampled_s >= SAMPLE_S and found.state.journal_bytes < SAMPLED_MAX_BYTES:
            found.append(*found.samples(move))
            sampled_s = now_s
        at = now_text()
        if arguments.json:
            print(json.dumps(progress_json(shown, at)), flush=True)
        else:
            if sys.stdout.isatty() and not arguments.once:
                print(_CLEAR, end="")
            print(progress_text(shown, at), flush=True)
        if arguments.once or found.history.stage == "finished":
            return EX_OK
        time.sleep(max(0.0, arguments.interval - (time.monotonic() - now_s)))
        found.history = found.state.history()  # other commands go on meanwhile
