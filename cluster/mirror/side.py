"""Messages that a mirror and its master send each other beside the ring, as values and as bytes.

    mirror ── Pull ─► master ── Chunk ─► mirror          master ── Probe ─► member ── Report ─► master

Source: reliability §4.5, §4.9.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from cluster.errors import Malformed
from cluster.mirror import mirror_pb2 as wire
from cluster.remote.frames import decode_run
from node.queue.operations import SEQ_MAX, Enqueue, encode

RANGES_MAX: Final = 1024
"""The most ranges that a pull may name: some kilobytes, however many fragments are missing."""


@dataclass(frozen=True, slots=True)
class Pull:
    """A mirror's request for messages; only its last one counts.

    ranges: rising, apart, at most `RANGES_MAX`. A new request without any: the mirror wants nothing any more. The
    request that the master knows, without any: the mirror has taken `taken` chunks of it.
    installed, missing: messages that it has got by this synchronisation, and those that it lacks.
    """

    request: int
    ranges: tuple[range, ...] = ()
    taken: int = 0
    installed: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages for a pull.

    is_end: all named messages have been looked for.   is_refused: the sender isn't the master, and sends no more.
    """

    request: int
    entries: tuple[Enqueue, ...] = ()
    is_end: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """The master's question how far a member has come: a broadcast with this number has not come round."""

    number: int


@dataclass(frozen=True, slots=True)
class Report:
    """A member's answer to a `Probe`: the last of the master's broadcasts that it has, and that its disk has; -1:
    none.

    disk: None: no confirm waits for its disk.
    """

    last: int
    disk: int | None = None


Side: TypeAlias = Pull | Chunk | Probe | Report


def encode_side(message: Side) -> bytes:
    """Encode a message."""
    match message:
        case Pull(request, ranges, taken, installed, missing):
            pull = wire.Pull(
                request=request, steps=_steps(ranges), taken=taken, installed=installed, owed=missing
            )
            side = wire.Side(pull=pull)
        case Chunk(request, entries, is_end, is_refused):
            runs = [b"".join(encode(entry)) for entry in entries]
            side = wire.Side(
                chunk=wire.Chunk(request=request, runs=runs, is_end=is_end, is_refused=is_refused)
            )
        case Probe(number):
            side = wire.Side(probe=wire.Probe(number=number))
        case Report(last, disk):  # the first one is number 0
            side = wire.Side(report=wire.Report(last=last + 1, disk=0 if disk is None else disk + 2))
    return side.SerializeToString()


def decode_side(raw: bytes) -> Side:
    """Decode a message of `encode_side`. Raises: Malformed."""
    try:
        side = wire.Side.FromString(raw)
    except DecodeError as error:
        raise Malformed(f"a message beside the ring is damaged: {error}") from error
    match side.WhichOneof("kind"):
        case "pull":
            pull = side.pull
            return Pull(pull.request, _ranges(pull.steps), pull.taken, pull.installed, pull.owed)
        case "chunk":
            chunk = side.chunk
            return Chunk(chunk.request, tuple(map(decode_run, chunk.runs)), chunk.is_end, chunk.is_refused)
        case "probe":
            return Probe(side.probe.number)
        case "report":
            report = side.report
            return Report(report.last - 1, report.disk - 2 if report.disk else None)
        case _:
            raise Malformed("an empty message beside the ring")


def _steps(ranges: Iterable[range]) -> list[int]:
    steps: list[int] = []
    end = 0
    for part in ranges:
        steps += (part.start - end, part.stop - part.start)
        end = part.stop
    return steps


def _ranges(steps: Iterable[int]) -> tuple[range, ...]:
    bounds = list(accumulate(steps))
    if len(bounds) > 2 * RANGES_MAX:
        raise Malformed("a pull of too many ranges")
    if len(bounds) % 2 or (bounds and bounds[-1] > SEQ_MAX):
        raise Malformed("a pull of invalid ranges")
    ranges = tuple(map(range, bounds[::2], bounds[1::2]))
    if not all(ranges):
        raise Malformed("a pull of ranges that are empty")
    return ranges
