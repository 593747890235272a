"""The progress of a migration: messages at both ends, rates, the time that is left."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from node.catalogue.records import Json
from node.migrate.counts import Account
from node.migrate.move import Move
from node.migrate.queues import Key
from node.migrate.tables import amount, bar, counted, duration, shown, table

QUEUES_SHOWN: Final = 20
POINTS_MAX: Final = 12
"""The time that is left goes by so many looks."""


class Pace:
    """The speed at which messages leave the source, by the last looks."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=POINTS_MAX)

    def look(self, at_s: float, waiting: int) -> None:
        """Take a look into account.   waiting: messages at the source."""
        self._points.append((at_s, waiting))

    @property
    def rate(self) -> float | None:
        """The messages that wait less each second; negative while they grow; None before two looks."""
        if len(self._points) < 2:
            return None
        (begin_s, before), (end_s, now) = self._points[0], self._points[-1]
        return None if end_s <= begin_s else (before - now) / (end_s - begin_s)

    def left_s(self) -> float | None:
        """Return the seconds until nothing waits at the source; None if that cannot be told."""
        waiting = self._points[-1][1] if self._points else 0
        if not waiting:
            return 0.0
        rate = self.rate
        return waiting / rate if rate is not None and rate > 0 else None


@dataclass(frozen=True, slots=True)
class Row:
    """One queue.   source, target: what waits there."""

    key: Key
    source: int
    target: int
    in_rate: float
    out_rate: float
    state: str


@dataclass(frozen=True, slots=True)
class Progress:
    """All queues of a migration at one look.

    gone: messages that have left the source since the start.   all: those, and what waits there.
    """

    move: Move
    rows: tuple[Row, ...]
    gone: int
    all: int
    rate: float | None
    left_s: float | None

    @property
    def source(self) -> int:
        """The messages that wait at the source."""
        return sum(row.source for row in self.rows)

    @property
    def target(self) -> int:
        """The messages that wait at the target."""
        return sum(row.target for row in self.rows)

    @property
    def done(self) -> float:
        """The part of the messages that has left the source, 0 to 1."""
        return self.gone / self.all if self.all else 1.0


def progress(move: Move, pace: Pace, at_s: float) -> Progress:
    """Return the progress.   pace: is told of this look."""
    found, gone, everything = [], 0, 0
    consumers = move.consumers()
    for plan in move.plans():
        queue = plan.queue
        if plan.way == "stays":
            continue
        there = move.target.queues.get(queue.key)
        account = move.history.accounts.get((move.source_side, queue.key), Account())
        gone += account.went
        everything += account.went + queue.messages
        found.append(
            Row(
                queue.key,
                queue.messages,
                there.messages if there is not None else 0,
                queue.publish_rate,
                there.out_rate if there is not None else 0.0,
                _state(move, queue.key, consumers.get(queue.key, 0)),
            )
        )
    pace.look(at_s, sum(row.source for row in found))
    return Progress(move, tuple(found), gone, everything, pace.rate, pace.left_s())


def _state(move: Move, key: Key, consumers: int) -> str:
    shovel = move.shovel(key)
    if shovel not in move.history.shovels:
        if move.history.stage == "finished":
            return "done"
        return f"waits for {counted(consumers, 'consumer')} to leave" if consumers else "no shovel yet"
    status = move.status(shovel)
    if status is None:
        return "has a shovel"
    return status.state + (f": {status.reason}" if status.reason else "")


def progress_text(found: Progress, at: str) -> str:
    """Return the progress as text, each line ended.   at: the time, as text."""
    move = found.move
    source, target = move.source.product, move.target.product
    rate = "–" if found.rate is None else f"{amount(found.rate)}/s"
    lines = [
        f"{at}  {move.history.stage}, {source} → {target}",
        f"{bar(found.done)}  {found.source:,} at {source}, {found.target:,} at {target}, {rate} fewer at {source}, "
        f"{duration(found.left_s)} left",
    ]
    longest = sorted(found.rows, key=lambda each: (-each.source, -each.target, each.key))[:QUEUES_SHOWN]
    rows = [
        (
            shown(each.key[0]),
            shown(each.key[1]),
            f"{each.source:,}",
            f"{each.target:,}",
            amount(each.in_rate),
            amount(each.out_rate),
            shown(each.state),
        )
        for each in longest
    ]
    if rows:
        head = (
            "vhost",
            "queue",
            f"at {source}",
            f"at {target}",
            f"in/s {source}",
            f"out/s {target}",
            "shovel",
        )
        lines += table(head, rows, right=(2, 3, 4, 5))
    if len(found.rows) > len(rows):
        lines.append(f"and {len(found.rows) - len(rows):,} queues with fewer messages")
    return "".join(f"{line}\n" for line in lines)


def progress_json(found: Progress, at: str) -> dict[str, Json]:
    """Return the progress as JSON."""
    return {
        "at": at,
        "direction": found.move.direction,
        "stage": found.move.history.stage,
        "messages_source": found.source,
        "messages_target": found.target,
        "gone": found.gone,
        "done": round(found.done, 4),
        "rate": None if found.rate is None else round(found.rate, 1),
        "seconds_left": None if found.left_s is None else round(found.left_s, 1),
        "queues": [
            {
                "vhost": row.key[0],
                "name": row.key[1],
                "messages_source": row.source,
                "messages_target": row.target,
                "publish_rate_source": row.in_rate,
                "out_rate_target": row.out_rate,
                "shovel": row.state,
            }
            for row in found.rows
        ],
    }
