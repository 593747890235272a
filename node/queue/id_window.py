"""The ids of the messages that are in a queue, ready or with a client, so that a second message with an id is found.

An id is the value of the header `x-deduplication-header`. It leaves the window with its message. Memory: some 200 bytes
for a message with an id; messages without one are not in the window.
Source: documentation and code of RabbitMQ's community plug-in rabbitmq_message_deduplication; docs/deduplication.md.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from node.amqp.frames import FRAME_HEADER_STRUCT
from node.catalogue.arguments import Comparable, comparable
from node.queue.content import chosen_headers
from node.queue.run import NEVER

ID_HEADER: Final = "x-deduplication-header"
"""The header with the id of a message."""

DIGEST_BYTES: Final = 16
"""The size of the digest that stands for an id which is a longer text. Of a billion ids two have the same digest with a
probability below 10**-20."""

Id: TypeAlias = Comparable

_NAME: Final = ID_HEADER.encode()
_NAMES: Final = (_NAME,)

_ENTRY: Final = bytes([len(_NAME)]) + _NAME + b"S"
"""The octets of a header with a text, before its length."""

_FLAGS_AT: Final = FRAME_HEADER_STRUCT.size + 12
_PROPERTIES_AT: Final = _FLAGS_AT + 2
"""The places of the property flags and of the first property in a content whose flags fit two octets."""

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20
"""Bits of the first octet of the property flags. The first two properties are shortstrs."""


def first_text_id(content: bytes) -> bytes | None:
    """Return the id of a message whose first header it is, if it is a text; None: `chosen_headers` knows more.

    Most messages with an id are like that, and this takes a third of the time.
    """
    flags = content[_FLAGS_AT]
    if not flags & _HEADERS or content[_FLAGS_AT + 1] & 1:
        return None
    at = _PROPERTIES_AT
    if flags & _CONTENT_TYPE:
        at += 1 + content[at]
    if flags & _CONTENT_ENCODING:
        at += 1 + content[at]
    if not content.startswith(_ENTRY, at + 4):
        return None
    start = at + 4 + len(_ENTRY) + 4
    return content[start : start + int.from_bytes(content[start - 4 : start], "big")]


def id_of(content: bytes) -> Id | None:
    """Return the id of a message; None: it has none. Numbers are equal by value, texts by their bytes."""
    text = first_text_id(content)
    if text is not None:
        return text if len(text) <= DIGEST_BYTES else blake2b(text, digest_size=DIGEST_BYTES).digest()
    field = chosen_headers(content, _NAMES).get(ID_HEADER)
    if field is None:
        return None
    value = comparable(field)
    if isinstance(value, bytes) and len(value) > DIGEST_BYTES:
        return blake2b(value, digest_size=DIGEST_BYTES).digest()
    return value


class IdWindow:
    """The ids of one queue's messages, by the queue's numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Id, int] = {}
        self._ids: dict[int, Id] = {}
        self._expiries: dict[int, float] = {}  # of messages that expire
        self._out: set[int] = set()
        """The messages with clients, those without an id too: a purge leaves them."""

    def __len__(self) -> int:
        return len(self._numbers)

    def has(self, id_: Id, now: float) -> bool:
        """Return True if a message with this id is in the queue whose time is not over."""
        number = self._numbers.get(id_)
        return number is not None and (not self._expiries or self._expiries.get(number, NEVER) > now)

    def is_of(self, id_: Id, number: int) -> bool:
        """Return True if this message is known to have this id."""
        return self._ids.get(number) == id_

    def add(self, id_: Id, number: int, expiry: float) -> None:
        """Take in a message that has come into the queue."""
        self._numbers[id_] = number
        self._ids[number] = id_
        if expiry != NEVER:
            self._expiries[number] = expiry

    def went_out(self, seqs: range) -> None:
        """Note that messages went to a client that will settle them."""
        self._out.update(seqs)

    def came_back(self, seqs: range) -> None:
        """Note that messages came back from a client."""
        self._out.difference_update(seqs)

    def renumbered(self, old: range, new: range, expiry: float) -> None:
        """Note that messages have got other numbers, and when they expire now; they keep their ids."""
        for before, after in zip(old, new, strict=True):
            id_ = self._ids.get(before)
            if id_ is None:
                continue
            is_its = self._numbers.get(id_) == before  # else it had expired, and a later message has its id
            self.left(range(before, before + 1))
            self._ids[after] = id_
            if expiry != NEVER:
                self._expiries[after] = expiry
            if is_its:
                self._numbers[id_] = after

    def left(self, seqs: range) -> None:
        """Forget messages that have left the queue."""
        numbers, ids, expiries = self._numbers, self._ids, self._expiries
        self._out.difference_update(seqs)
        for number in seqs:
            id_ = ids.pop(number, None)
            if id_ is None:
                continue
            if numbers.get(id_) == number:  # else it had expired, and a later message has its id
                del numbers[id_]
            if expiries:
                expiries.pop(number, None)

    def purged(self) -> None:
        """Forget all messages but those with clients."""
        kept = [(number, id_) for number in self._out if (id_ := self._ids.get(number)) is not None]
        expiries = {number: self._expiries[number] for number, _ in kept if number in self._expiries}
        self._numbers = {id_: number for number, id_ in kept}
        self._ids = dict(kept)
        self._expiries = expiries


def pieces_of(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Return rising indexes as ranges of consecutive ones: the first, and the one behind the last."""
    pieces: list[tuple[int, int]] = []
    for index in indexes:
        if pieces and pieces[-1][1] == index:
            pieces[-1] = (pieces[-1][0], index + 1)
        else:
            pieces.append((index, index + 1))
    return pieces
