"""The versions of STOMP: which one is spoken, and how each writes characters that end a header.

    1.2: \\r \\n \\c \\\\      1.1: \\n \\c \\\\      1.0: nothing is escaped

CONNECT and CONNECTED are never escaped, as clients of 1.0 have to read them.
Source: STOMP 1.1 and 1.2, "Value Encoding". RabbitMQ's plug-in escapes alike in all versions.
"""

import re
from typing import Final

from node.stomp.errors import bad_frame

V1_0: Final = "1.0"
V1_1: Final = "1.1"
V1_2: Final = "1.2"
VERSIONS: Final = (V1_0, V1_1, V1_2)

UNESCAPED: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})
"""The frames whose headers are never escaped."""

_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
_MEANT: Final = {"n": "\n", "c": ":", "\\": "\\", "r": "\r"}


def negotiated(accepted: str | None) -> str | None:
    """Return the newest version that a client accepts, `1.0,1.1`; None if there is none of ours among them."""
    offered = (accepted or V1_0).split(",")
    common = [version for version in VERSIONS if version in offered]
    return common[-1] if common else None


def escape(text: str, version: str) -> str:
    """Return a header's name or value as a frame has it. In 1.0 nothing can stand for a line feed: it becomes `\\n`."""
    if version == V1_0:
        return text.replace("\n", "\\n")
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
    return text.replace("\r", "\\r") if version == V1_2 else text


def unescape(text: str) -> str:
    """Return what is meant by a header's name or value of 1.1 or 1.2. Raises: FramingError."""
    return _ESCAPE.sub(_meant, text) if "\\" in text else text


def _meant(found: re.Match[str]) -> str:
    meant = _MEANT.get(found[1])
    if meant is None:
        raise bad_frame(f"the escape sequence \\{found[1]} is not defined\n")
    return meant
