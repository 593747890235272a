"""A STOMP frame, and its bytes.

    COMMAND\\n name:value\\n ... \\n body \\0
Texts are UTF-8; octets that are none are kept as surrogates.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from node.stomp.versions import UNESCAPED, V1_2, escape

END: Final = b"\0\n"
"""The end of each frame that the node sends: RabbitMQ's plug-in adds a line feed, which means nothing."""

EOL: Final = b"\n"
"""A heart-beat."""


class Head(NamedTuple):
    """The command and headers of a frame.

    headers: of several with one name the first one counts, and is the only one here.
    content_length: None if the body goes to the first NUL.
    """

    command: str
    headers: dict[str, str]
    content_length: int | None


class Frame(NamedTuple):
    """A whole frame."""

    head: Head
    body: bytes


def header_lines(headers: Iterable[tuple[str, str]], version: str) -> bytes:
    """Return headers as lines of a frame that is escaped."""
    lines = [f"{escape(name, version)}:{escape(value, version)}\n" for name, value in headers]
    return "".join(lines).encode("utf-8", "surrogateescape")


def encode(command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: str = V1_2) -> bytes:
    """Return the bytes of a frame. A body has its length before it."""
    if command in UNESCAPED:
        lines = "".join(f"{name}:{value}\n" for name, value in headers).encode("utf-8", "surrogateescape")
    else:
        lines = header_lines(headers, version)
    length = b"content-length:%d\n" % len(body) if body else b""
    return b"".join((command.encode(), EOL, lines, length, EOL, body, END))
