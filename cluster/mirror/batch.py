"""The changes of a queue in one turn, which its master sends to the mirrors as one payload of the ring.

    batch     = next_seq:longlong mastership:longlong count:short (sender:longlong number:longlong)* step*
    step      = length:long (operation | inventory | handover | sync-mode | sender-gone | clock)
    operation = see node.broker.operations; the contents of an Enqueue are always embedded
    inventory = 16 member:longlong count:short (sender:longlong number:longlong)* bounds:longlong*
    handover  = 17 version:longlong   sync-mode = 18 is_on:octet   sender-gone = 19 sender:longlong
    clock     = 20 at_ms:longlong, before all other steps where messages expire, and with an inventory

Source: reliability §4.4, §4.5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct, error, pack, unpack_from
from typing import Final, TypeAlias

from cluster.errors import Malformed
from node.queue.operations import CorruptRecord, Operation, decode, encode

_HEAD: Final = Struct(">QQH")
_PAIR: Final = Struct(">QQ")
_LENGTH: Final = Struct(">I")
_ROLL_HEAD: Final = Struct(">BQH")
_SYNC_MODE: Final = Struct(">BB")
_NUMBERED: Final = Struct(">BQ")

_ROLL: Final = 16
_HANDOVER: Final = 17
_SYNC_MODE_KIND: Final = 18
_SENDER_GONE_KIND: Final = 19
_CLOCK: Final = 20


@dataclass(frozen=True, slots=True)
class Inventory:
    """The inventory for a member that is not synchronised: these messages, and no others, exist at this point.

    ids: rising, of step 1.   senders: the number of the last publish of each front end.
    """

    member: int
    ids: tuple[range, ...]
    senders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Handover:
    """The last step of a master that hands over.   version: of the view in which it does."""

    version: int


@dataclass(frozen=True, slots=True)
class SyncMode:
    """An operator wants the mirrors to synchronise, or to stop that."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class SenderGone:
    """A front end is gone."""

    sender: int


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the master's node, ms since 1970, to which the expiry times of messages refer."""

    at_ms: int


Step: TypeAlias = Operation | Inventory | Handover | SyncMode | SenderGone | Clock


@dataclass(slots=True)
class Batch:
    """The steps of one turn.

    next_seq: the number of the next message.   mastership: of the master that sends this.
    senders: the number of the last publish of each front end that published something.
    """

    next_seq: int
    mastership: int
    senders: Mapping[int, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def encode_batch(batch: Batch) -> bytes:
    """Encode a batch as a payload."""
    parts = [_HEAD.pack(batch.next_seq, batch.mastership, len(batch.senders)), *_pairs(batch.senders)]
    for step in batch.steps:
        raw = _encode_step(step)
        parts.append(_LENGTH.pack(sum(map(len, raw))))
        parts += raw
    return b"".join(parts)


def _pairs(senders: Mapping[int, int]) -> Iterable[bytes]:
    return (_PAIR.pack(sender, number) for sender, number in senders.items())


def _encode_step(step: Step) -> list[bytes]:
    match step:
        case Inventory(member, ids, senders):
            bounds = [bound for part in ids for bound in (part.start, part.stop)]
            head = _ROLL_HEAD.pack(_ROLL, member, len(senders))
            return [head, *_pairs(senders), pack(f">{len(bounds)}Q", *bounds)]
        case Handover(version):
            return [_NUMBERED.pack(_HANDOVER, version)]
        case SyncMode(is_on):
            return [_SYNC_MODE.pack(_SYNC_MODE_KIND, is_on)]
        case SenderGone(sender):
            return [_NUMBERED.pack(_SENDER_GONE_KIND, sender)]
        case Clock(at_ms):
            return [_NUMBERED.pack(_CLOCK, at_ms)]
        case _:
            return encode(step)


def decode_batch(payload: bytes) -> Batch:
    """Decode a batch of `encode_batch`. Raises: Malformed."""
    try:
        next_seq, mastership, count = _HEAD.unpack_from(payload)
        at = _HEAD.size
        senders, at = _decode_pairs(payload, at, count)
        batch = Batch(next_seq, mastership, senders)
        while at < len(payload):
            (length,) = _LENGTH.unpack_from(payload, at)
            at += _LENGTH.size
            if not length or at + length > len(payload):
                raise Malformed("a step that is cut off")
            batch.steps.append(_decode_step(payload[at : at + length]))
            at += length
    except (error, CorruptRecord) as damage:
        raise Malformed(f"a batch is damaged: {damage}") from damage
    return batch


def _decode_pairs(raw: bytes, at: int, count: int) -> tuple[dict[int, int], int]:
    numbers = unpack_from(f">{2 * count}Q", raw, at)
    return dict(zip(numbers[::2], numbers[1::2], strict=True)), at + count * _PAIR.size


def _decode_step(raw: bytes) -> Step:
    kind = raw[0]
    if kind == _ROLL:
        return _decode_inventory(raw)
    if kind == _HANDOVER:
        return Handover(_NUMBERED.unpack(raw)[1])
    if kind == _SYNC_MODE_KIND:
        return SyncMode(bool(_SYNC_MODE.unpack(raw)[1]))
    if kind == _SENDER_GONE_KIND:
        return SenderGone(_NUMBERED.unpack(raw)[1])
    if kind == _CLOCK:
        return Clock(_NUMBERED.unpack(raw)[1])
    return decode(raw)


def _decode_inventory(raw: bytes) -> Inventory:
    _, member, count = _ROLL_HEAD.unpack_from(raw)
    senders, at = _decode_pairs(raw, _ROLL_HEAD.size, count)
    bounds = unpack_from(f">{(len(raw) - at) // 8}Q", raw, at)
    if (len(raw) - at) % 16 or any(low >= high for low, high in pairwise(bounds)):
        raise Malformed("an inventory with invalid numbers")
    return Inventory(member, tuple(map(range, bounds[::2], bounds[1::2])), senders)
