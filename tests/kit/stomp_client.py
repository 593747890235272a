"""A STOMP client of raw frames, which knows nothing of the node's own codec.

client = StompClient("127.0.0.1", port)      client.connect()      client.done("SEND", b"m", destination="/queue/q")
"""

import contextlib
import itertools
import socket
from dataclasses import dataclass, field
from typing import Final

from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import patience

READ_BYTES: Final = 65536

_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
_MEANT: Final = {escape: character for character, escape in _ESCAPES.items()}


class StompClosed(Exception):
    """The server has closed the connection."""


@dataclass(frozen=True)
class StompFrame:
    """A frame that came.   raw: its bytes up to the NUL."""

    command: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = field(default=b"", compare=False)

    @property
    def told(self) -> tuple[str, str]:
        """The two texts of an ERROR frame."""
        assert self.command == "ERROR", self
        return self.headers["message"], self.body.decode()


class StompClient:
    """A connection.   beats: how many line feeds came between frames."""

    def __init__(self, host: str, port: int, version: str = "1.2") -> None:
        self.version = version
        self.beats = 0
        self.data = b""
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S * patience())
        self._receipts = itertools.count(1)

    def __enter__(self) -> "StompClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket without a word."""
        self.socket.close()

    # --- frames out ---

    def send(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Send a frame; `_` in the name of a header is a hyphen."""
        self.send_pairs(
            command, [(name.replace("_", "-"), str(value)) for name, value in headers.items()], body
        )

    def send_pairs(self, command: str, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        """Send a frame whose headers have any names, or the same one several times."""
        is_escaped = self.version != "1.0" and command not in ("CONNECT", "STOMP")
        lines = [f"{_escaped(n)}:{_escaped(v)}\n" if is_escaped else f"{n}:{v}\n" for n, v in headers]
        self.send_raw(f"{command}\n{''.join(lines)}\n".encode() + body + b"\0")

    def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def connect(self, **headers: object) -> StompFrame:
        """Log in as guest unless `headers` say otherwise; return the answer."""
        self.send(
            "CONNECT", **{"accept_version": self.version, "login": "guest", "passcode": "guest", **headers}
        )
        return self.frame()

    def done(self, command: str, body: bytes = b"", **headers: object) -> None:
        """Send a frame with a receipt, and wait for that; nothing else may come before."""
        receipt = f"receipt-{next(self._receipts)}"
        self.send(command, body, receipt=receipt, **headers)
        assert self.frame() == StompFrame("RECEIPT", {"receipt-id": receipt})

    def ask(self, command: str, body: bytes = b"", **headers: object) -> StompFrame:
        """Send a frame, and return the next one."""
        self.send(command, body, **headers)
        return self.frame()

    # --- frames in ---

    def frame(self) -> StompFrame:
        """Wait for a frame. Raises: StompClosed."""
        while (end := self._head_end()) < 0:
            self._read()
        command, *lines = self.data[:end].decode("utf-8", "surrogateescape").split("\n")
        headers: dict[str, str] = {}
        is_escaped = self.version != "1.0" and command != "CONNECTED"
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon, line
            headers.setdefault(*((_meant(name), _meant(value)) if is_escaped else (name, value)))
        start = end + 2
        length = headers.pop("content-length", None)
        if length is None:
            while (stop := self.data.find(0, start)) < 0:
                self._read()
        else:
            stop = start + int(length)
            while len(self.data) <= stop:
                self._read()
        assert self.data[stop] == 0
        found = StompFrame(command, headers, self.data[start:stop], self.data[:stop])
        self.data = self.data[stop + 1 :]
        return found

    def messages(self, count: int) -> list[bytes]:
        """Wait for so many MESSAGE frames, and return their bodies."""
        found = [self.frame() for _ in range(count)]
        assert {each.command for each in found} <= {"MESSAGE"}, found
        return [each.body for each in found]

    def nothing_more(self) -> bool:
        """True if nothing came before the answer to another frame. What was on its way before it has come then."""
        self.done("SEND", destination="/topic/stomp.nobody.hears.this")
        return True

    def is_closed(self) -> bool:
        """Wait until the server closes the connection; True if nothing came before."""
        with contextlib.suppress(StompClosed):
            self.frame()
            return False
        return True

    def _head_end(self) -> int:
        """Skip what may stand between frames, and return where the head ends; -1 if it is not there."""
        rest = self.data.lstrip(b"\n")
        self.beats += len(self.data) - len(rest)
        self.data = rest
        return rest.find(b"\n\n")

    def _read(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise StompClosed(self.data)
        self.data += data


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _meant(text: str) -> str:
    found, at = "", 0
    while at < len(text):
        pair = text[at : at + 2]
        found += _MEANT.get(pair, text[at])
        at += 2 if pair in _MEANT else 1
    return found
