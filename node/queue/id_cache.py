"""The ids of messages that have passed a deduplicating exchange: the last ones, up to a number and an age.

Ids come in entries, as many as the exchange's queue looked at in one go. An entry is kept in that queue as a message,
so that it is on all copies. Its body has 32 octets for an id: a digest, the number of the message that had it, and the
time of day at which it is forgotten. An entry is forgotten when all its ids are.

Memory: some 180 bytes for an id, with its part of an entry.
Source: docs/deduplication.md.
"""

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from node.catalogue.arguments import Comparable

DIGEST_BYTES: Final = 16
"""The size of the digest of an id. Of a billion ids two have the same one with a probability below 10**-20."""

NO_EXPIRY: Final = 0
"""The time of an id that is forgotten only when the cache is full."""

_ID: Final = Struct(f">{DIGEST_BYTES}sQQ")


class CachedId(NamedTuple):
    """An id.   number: of the message that had it.   expires_at_ms: time of day, or `NO_EXPIRY`."""

    digest: bytes
    number: int
    expires_at_ms: int


def text_digest(text: bytes) -> bytes:
    """Return the digest of an id that is a text, as `digest_of` does."""
    return blake2b(text, digest_size=DIGEST_BYTES).digest()


def digest_of(id_: Comparable) -> bytes:
    """Return the digest of an id. Values that are equal have the same one."""
    if isinstance(id_, bytes):
        return text_digest(id_)
    if isinstance(id_, float) and id_.is_integer():
        id_ = int(id_)
    # No text can be taken for a value of another type: the key makes it another function.
    return blake2b(
        repr(id_).encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES, key=b"value"
    ).digest()


def encode_ids(ids: list[CachedId]) -> bytes:
    """Return the body of an entry."""
    return b"".join(_ID.pack(*each) for each in ids)


def decode_ids(body: bytes) -> Iterator[CachedId]:
    """Yield the ids in the body of an entry."""
    for found in _ID.iter_unpack(body):
        yield CachedId(*found)


class _Entry:
    """An entry.   seq: its number in the queue.   at: the index of its first id that is not forgotten."""

    __slots__ = ("at", "body", "seq")

    def __init__(self, seq: int, body: bytes) -> None:
        self.seq = seq
        self.body = body
        self.at = 0

    @property
    def first(self) -> CachedId | None:
        """The oldest id that is not forgotten."""
        offset = self.at * _ID.size
        return CachedId(*_ID.unpack_from(self.body, offset)) if offset < len(self.body) else None


class IdCache:
    """The ids that have passed one exchange.   size_max: the most that are kept; above it the oldest are forgotten."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._expiries: dict[bytes, int] = {}
        self._entries: deque[_Entry] = deque()

    def __len__(self) -> int:
        return len(self._expiries)

    @property
    def entries(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def has(self, digest: bytes, now_ms: int) -> bool:
        """Return True if an id is among the last ones and not too old."""
        expiry = self._expiries.get(digest)
        return expiry is not None and (expiry == NO_EXPIRY or expiry > now_ms)

    def put(self, digest: bytes, expires_at_ms: int) -> None:
        """Take in an id. An entry that has it must follow."""
        self._expiries[digest] = expires_at_ms

    def add_entry(self, seq: int, body: bytes) -> None:
        """Take in an entry, whose number is above all others."""
        self._entries.append(_Entry(seq, body))

    def learn(self, seq: int, body: bytes) -> None:
        """Take in an entry and its ids, as it was found in the queue."""
        for each in decode_ids(body):
            self.put(each.digest, each.expires_at_ms)
        self.add_entry(seq, body)

    def last(self, count: int) -> list[tuple[int, bytes]]:
        """Return the last entries, oldest first: number and body."""
        return [(entry.seq, entry.body) for entry in list(self._entries)[-count:] if not entry.at]

    def replace_last(self, count: int) -> None:
        """Drop the last entries, whose ids are in one that follows at once."""
        for _ in range(count):
            self._entries.pop()

    def forget(self, now_ms: int, limit: int) -> list[int]:
        """Forget ids that are too old or too many, up to a limit; return the numbers of entries of which none is left.

        An id behind one that is kept for longer counts until that one is forgotten.
        """
        gone: list[int] = []
        expiries, entries = self._expiries, self._entries
        for _ in range(limit):
            if not entries:
                break
            oldest = entries[0]
            first = oldest.first
            if first is None:
                gone.append(entries.popleft().seq)
                continue
            known = expiries.get(first.digest)
            is_current = known == first.expires_at_ms  # else a later message has had the id again
            is_over = first.expires_at_ms != NO_EXPIRY and first.expires_at_ms <= now_ms
            if is_current and not is_over and len(expiries) <= self.size_max:
                break
            if is_current:
                del expiries[first.digest]
            oldest.at += 1
        return gone

    @property
    def next_expiry_ms(self) -> int:
        """The time of day at which `forget` has something to do again; `NO_EXPIRY`: not by time."""
        first = self._entries[0].first if self._entries else None
        return NO_EXPIRY if first is None else first.expires_at_ms

    def clear(self) -> None:
        """Forget all."""
        self._expiries.clear()
        self._entries.clear()
