"""Runs: messages that travel together.

The messages of one socket read for one queue are a *run*: contents in order, numbered by the queue, sharing
everything else. Nothing in the broker exists per message except its bytes, so moving, delivering and settling
messages cost per run. A run is cut by slicing when its messages' ways part.
"""

from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from node.amqp.frames import body_size
from node.amqp.reader import MIXED_SIZES

NEVER: Final = float("inf")
"""The expiry of messages that do not expire."""


class Envelope:
    """The values that all publishes of one route have in common. It is made once, shared by reference, and never
    changed.

    exchange, routing_key: as published, even after dead-lettering.
    address: the two as the shortstrs that `basic.deliver` and `basic.get-ok` end with.
    channel, frame_max_bytes: the channel number in the contents' frames, and the largest size of one of these frames
        (0: no limit).
    expiration_ms: the message's own time to live.
    cc, bcc: further routing keys from the headers; BCC is no longer in the content but counts in dead-lettering.
    waits: a client returned the messages, and they are not ready before their `expiry` (`node.queue.retries`).
    """

    __slots__ = (
        "address",
        "bcc",
        "cc",
        "channel",
        "exchange",
        "expiration_ms",
        "frame_max_bytes",
        "persistent",
        "priority",
        "routing_key",
        "waits",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        *,
        channel: int,
        frame_max_bytes: int,
        persistent: bool = False,
        priority: int = 0,
        expiration_ms: int | None = None,
        cc: tuple[str, ...] = (),
        bcc: tuple[str, ...] = (),
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.address = _shortstr(exchange) + _shortstr(routing_key)
        self.channel = channel
        self.frame_max_bytes = frame_max_bytes
        self.persistent = persistent
        self.priority = priority
        self.expiration_ms = expiration_ms
        self.cc = cc
        self.bcc = bcc
        self.waits = False

    def counterpart(self) -> "Envelope":
        """Return the envelope of the same messages when they begin to wait, or no longer do."""
        found = copy(self)
        found.waits = not self.waits
        return found

    def of_exchange(self, exchange: str) -> "Envelope":
        """Return the envelope of the same messages that come from another exchange."""
        if exchange == self.exchange:
            return self
        found = copy(self)
        found.exchange = exchange
        found.address = _shortstr(exchange) + _shortstr(self.routing_key)
        return found

    def is_like(self, other: "Envelope") -> bool:
        """True if messages in the two may share one."""
        return self is other or all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _shortstr(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return bytes([len(raw)]) + raw


class Batch:
    """Messages that were published together, on their way into queues. It is never changed: queues keep copies.

    contents: not to be changed, but copied if kept.   size, store_id: as in `Run`.
    """

    __slots__ = ("contents", "envelope", "size", "store_id")

    def __init__(self, envelope: Envelope, contents: list[bytes], size: int, store_id: int = 0) -> None:
        self.envelope = envelope
        self.contents = contents
        self.size = size
        self.store_id = store_id


class Run:
    """Messages of one queue with one envelope, in the queue's order.

    seqs: the queue's numbers for them, rising; a step other than 1 after a round robin over consumers.
    contents: one for each number, owned by the run; None once settled (see `node.client.unacked`).
    size: of each body in bytes, or `MIXED_SIZES`.
    expiry: when they expire, in seconds on the broker's clock, or `NEVER`.
    deliveries: how often they came back from a client; with 0 they are not `redelivered`.
    store_id: of the first content in the message store, the others being numbered like `seqs`; 0: not there.
    is_indexed: whether the queue's index on disk knows the messages and must be told when they are gone.
    """

    __slots__ = (
        "contents",
        "deliveries",
        "envelope",
        "expiry",
        "is_indexed",
        "seqs",
        "size",
        "store_id",
    )

    def __init__(
        self,
        envelope: Envelope,
        seqs: range,
        contents: list[bytes],
        size: int,
        expiry: float = NEVER,
        deliveries: int = 0,
        store_id: int = 0,
        is_indexed: bool = False,
    ) -> None:
        self.envelope = envelope
        self.seqs = seqs
        self.contents = contents
        self.size = size
        self.expiry = expiry
        self.deliveries = deliveries
        self.store_id = store_id
        self.is_indexed = is_indexed

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, part: slice) -> "Run":
        """Return the messages at some indexes, as a run of its own."""
        seqs = self.seqs[part]
        store_id = self.store_id + seqs.start - self.seqs.start if self.store_id else 0
        return Run(
            self.envelope,
            seqs,
            self.contents[part],
            self.size,
            self.expiry,
            self.deliveries,
            store_id,
            self.is_indexed,
        )

    @property
    def body_bytes(self) -> int:
        """The number of bytes of all bodies."""
        return bytes_of(self.contents, self.size)

    def pieces(self) -> "list[Run]":
        """Return the run as runs with consecutive numbers."""
        if self.seqs.step == 1 or len(self) == 1:
            return [self]
        return self.singles()

    def renumbered(self, first_seq: int, *, is_indexed: bool) -> "Run":
        """Return the run, whose numbers are consecutive, under new numbers, to be indexed once more or not at all.

        Contents that nobody but the index has a reference to in the message store get another id there.
        """
        store_id = self.store_id if is_indexed or not self.is_indexed else 0
        seqs = range(first_seq, first_seq + len(self))
        contents = self.contents
        return Run(
            self.envelope, seqs, contents, self.size, self.expiry, self.deliveries, store_id, is_indexed
        )

    def singles(self) -> "list[Run]":
        """Return the run as runs of one message."""
        return [self[index : index + 1] for index in range(len(self))]

    def without_contents(self) -> "Absent":
        """Return the run, whose contents are in the message store, without them."""
        return Absent(
            self.envelope,
            self.seqs,
            self.size,
            self.body_bytes,
            self.expiry,
            self.deliveries,
            self.store_id,
            None,
        )


class Place(NamedTuple):
    """The place of embedded contents: a record of a segment, and how many of its contents come before them.

    offset, length: of the whole record in the segment's file, in bytes.
    """

    segment: int
    offset: int
    length: int
    skipped: int


class Absent:
    """A run whose contents are on disk while all else is in memory (beta, gamma). It is always indexed.

    seqs: of step 1.   place: of embedded contents; None: they are in the message store, from `store_id` on, and
    all of one `size`. The others are as in `Run`.
    """

    __slots__ = ("body_bytes", "deliveries", "envelope", "expiry", "place", "seqs", "size", "store_id")

    def __init__(
        self,
        envelope: Envelope,
        seqs: range,
        size: int,
        body_bytes: int,
        expiry: float,
        deliveries: int,
        store_id: int,
        place: Place | None,
    ) -> None:
        self.envelope = envelope
        self.seqs = seqs
        self.size = size
        self.body_bytes = body_bytes
        self.expiry = expiry
        self.deliveries = deliveries
        self.store_id = store_id
        self.place = place

    def __len__(self) -> int:
        return len(self.seqs)

    def __getitem__(self, part: slice) -> "Absent":
        """Return consecutive messages of one body size, as an absent run of their own."""
        assert self.size != MIXED_SIZES, "what stands in the message store has one size"
        seqs = self.seqs[part]
        skipped = seqs.start - self.seqs.start
        place = self.place
        return Absent(
            self.envelope,
            seqs,
            self.size,
            self.size * len(seqs),
            self.expiry,
            self.deliveries,
            self.store_id + skipped if self.store_id else 0,
            place._replace(skipped=place.skipped + skipped) if place is not None else None,
        )


def content_bytes(run: Run) -> int:
    """Return the number of bytes of all contents: of bodies, properties and frames. None of them is settled."""
    return sum(map(len, run.contents))


def bytes_of(contents: Sequence[bytes], size: int) -> int:
    """Return the number of bytes of the bodies of `contents`, where `size` is as in `Run`."""
    if size != MIXED_SIZES:
        return size * len(contents)
    return sum(map(body_size, contents))
