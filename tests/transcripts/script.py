"""Every kind of story has lines that say what happens, and below each, indented, what comes of it.

Empty lines and lines with # are for readers.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

INDENT: Final = "    "


def retold(text: str, tell: Callable[[str], Iterable[str]]) -> str:
    """Return the story with the present outcome of each line.   tell: what comes of a line, indented."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += tell(line)
    return "\n".join(lines) + "\n"


def main(stories: Sequence[Path], play: Callable[[str], str]) -> None:
    """Tell all stories, or those named; with --rewrite write down what came of them."""
    names = [argument for argument in sys.argv[1:] if argument != "--rewrite"]
    is_rewriting = "--rewrite" in sys.argv
    for path in stories:
        if names and path.stem not in names:
            continue
        old = path.read_text()
        new = play(old)
        if new != old:
            print(f"{path.name}: {'rewritten' if is_rewriting else 'differs'}")
            if is_rewriting:
                path.write_text(new)
