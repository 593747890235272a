"""The past of a migration, from its journal: a record for each step, in their order.

    {"at": "2026-11-28T11:20:00Z", "what": "definitions", "left_out": 2}
    {"at": …, "what": "shovel", "vhost": "/", "queue": "orders", "direction": "out", "is_put": true}
    {"at": …, "what": "stage", "stage": "consumers", "direction": "out"}
    {"at": …, "what": "sample", "side": "rabbitmq", "time_s": 1795864800, "rows": [["/", "orders", 7, 100, 93, 0], …]}

A step may be recorded twice: each can be repeated. Records that a later version wrote are passed over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from node.catalogue.records import Json
from node.migrate.answers import Row, count, is_set, text
from node.migrate.counts import Account, Reading, Side
from node.migrate.ends import Direction
from node.migrate.queues import Key
from node.migrate.shovels import Shovel

Record: TypeAlias = dict[str, Json]

Stage = Literal["planned", "started", "consumers", "publishers", "finished"]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""The stages of a direction, in their order: each says what has been let go of."""


class Begin(NamedTuple):
    """The counts of a queue when its shovel was made.   went, redelivered: at the source.   came: at the target."""

    went: int
    redelivered: int
    came: int


class Carried(NamedTuple):
    """The work of a queue's shovel.

    messages: what has left the source since the shovel was made.   more: what came in at the target beside that:
    messages that came twice, and those that clients published there.   twice: messages that came twice at most.
    """

    messages: int
    more: int
    twice: int


@dataclass(slots=True)
class History:
    """The past of a migration.

    stage: of the present direction.   shovels: those that are meant to exist.   accounts: the counts of both ends.
    times: when each stage of each direction was reached, as texts.   moved: queues that have or had a shovel.
    began: what the counters said when the first shovel of a queue in a direction was made.
    """

    direction: Direction = "out"
    stage: Stage = "planned"
    has_definitions: bool = False
    left_out: int = 0
    shovels: set[Shovel] = field(default_factory=set)
    accounts: dict[tuple[Side, Key], Account] = field(default_factory=dict)
    times: list[tuple[str, str]] = field(default_factory=list)
    moved: set[Key] = field(default_factory=set)
    began: dict[Shovel, Begin] = field(default_factory=dict)

    def account(self, side: Side, key: Key) -> Account:
        """Return the account of a queue at an end, which is created when it is missing."""
        return self.accounts.setdefault((side, key), Account())

    def carried(self, key: Key) -> Carried:
        """Return the work of a queue's shovel in the present direction."""
        shovel = Shovel(*key, self.direction)
        begin = self.began.get(shovel)
        if begin is None:
            return Carried(0, 0, 0)
        source, target = self._ends_of(shovel)
        messages = source.went - begin.went
        more = max(0, target.came - begin.came - messages)
        # A message comes twice if the source delivers it once more after the target has got it.
        return Carried(messages, more, min(more, source.redelivered - begin.redelivered))

    def _ends_of(self, shovel: Shovel) -> tuple[Account, Account]:
        """Return the accounts of a shovel's source and target."""
        sides: tuple[Side, Side] = ("rabbitmq", "fluffle")
        source, target = sides if shovel.direction == "out" else sides[::-1]
        return self.account(source, shovel.key), self.account(target, shovel.key)

    def take(self, record: Mapping[str, Json]) -> None:
        """Take one more record into account."""
        match record.get("what"):
            case "definitions":
                self.has_definitions, self.left_out = True, count(record, "left_out")
                self.times.append((text(record, "at"), "definitions imported"))
            case "shovel":
                self._take_shovel(record)
            case "stage":
                self._take_stage(record)
            case "sample":
                self._take_sample(record)

    def _take_shovel(self, record: Row) -> None:
        shovel = Shovel(text(record, "vhost"), text(record, "queue"), _direction(record))
        if is_set(record, "is_put"):
            self.shovels.add(shovel)
            self.moved.add(shovel.key)
            if shovel not in self.began:
                source, target = self._ends_of(shovel)
                self.began[shovel] = Begin(source.went, source.redelivered, target.came)
        else:
            self.shovels.discard(shovel)

    def _take_stage(self, record: Row) -> None:
        stage = text(record, "stage")
        if stage in STAGES:
            self.stage, self.direction = stage, _direction(record)
            arrow = "to Fluffle" if self.direction == "out" else "back to RabbitMQ"
            self.times.append((text(record, "at"), f"{stage} ({arrow})"))

    def _take_sample(self, record: Row) -> None:
        side = text(record, "side")
        found = record.get("rows")
        if side not in get_args(Side) or not isinstance(found, list):
            return
        time_s = record.get("time_s")
        at_s = float(time_s) if isinstance(time_s, int | float) else 0.0
        for row in found:
            reading = reading_of(row)
            if reading is not None:
                self.account(cast(Side, side), reading.key).take(reading, at_s)


def history(records: Iterable[Record]) -> History:
    """Return the history of records."""
    found = History()
    for record in records:
        found.take(record)
    return found


def reading_of(row: Json) -> Reading | None:
    """Return the reading of a row of a sample; None if the row makes no sense."""
    match row:
        case [str(vhost), str(name), int(messages), publish, out, int(redelivered)]:
            is_counted = isinstance(publish, int) and isinstance(out, int)
            return Reading(
                (vhost, name),
                messages,
                publish if is_counted and isinstance(publish, int) else None,
                out if is_counted and isinstance(out, int) else None,
                redelivered,
            )
    return None


def sample_record(side: Side, readings: Iterable[Reading], time_s: float) -> Record:
    """Return the record of readings of an end."""
    found: list[Json] = [
        [*each.key, each.messages, each.publish, each.out, each.redelivered] for each in readings
    ]
    return {"what": "sample", "side": side, "time_s": round(time_s, 3), "rows": found}


def shovel_record(shovel: Shovel, *, is_put: bool) -> Record:
    """Return the record of a shovel that is made or removed."""
    return {
        "what": "shovel",
        "vhost": shovel.vhost,
        "queue": shovel.queue,
        "direction": shovel.direction,
        "is_put": is_put,
    }


def stage_record(stage: Stage, direction: Direction) -> Record:
    """Return the record of a stage that is reached."""
    return {"what": "stage", "stage": stage, "direction": direction}


def _direction(record: Row) -> Direction:
    return "back" if text(record, "direction") == "back" else "out"
