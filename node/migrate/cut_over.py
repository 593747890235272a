"""Whether clients may move now: the reasons against it, each of which would lose or strand messages.

Consumers move first, publishers follow, and the migration ends when the queues that it leaves are empty. Each step has
its own reasons; all of them are told, not the first alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from node.migrate.answers import Row
from node.migrate.client_needs import client_findings
from node.migrate.counts import Reading
from node.migrate.history import Stage
from node.migrate.move import Move, missing_objects
from node.migrate.queues import Key, Queue
from node.migrate.tables import counted, duration

Step = Literal["consumers", "publishers", "finish"]

NEXT: Final[dict[Stage, Step | None]] = {
    "planned": None,
    "started": "consumers",
    "consumers": "publishers",
    "publishers": "finish",
    "finished": None,
}
"""The step that follows each stage."""

SETTLED_S: Final = 12.0
"""RabbitMQ's counts are up to 5 s old, those of an idle queue older: two looks this far apart, both empty, are one."""


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason against a step.   text: one line."""

    text: str


def objections(move: Move, step: Step, document: Row) -> list[Objection]:
    """Return the reasons against a step.   document: the definitions of the source that the target can take."""
    return [Objection(text) for text in _all(move, step, document)]


def _all(move: Move, step: Step, document: Row) -> Iterator[str]:
    stage = move.history.stage
    if stage in ("planned", "finished"):
        what = "has not begun: run `fluffle migrate start`" if stage == "planned" else "is finished"
        yield f"the migration {what}"
        return
    for missing in missing_objects(document, move.target.definitions):
        yield f"{missing} is not at {move.target.product}: run `fluffle migrate start` again"
    yield from _target_alarms(move)
    if step != "finish":
        for finding in client_findings(move.source, move.target):
            if finding.weight == "blocks":
                yield f"{finding.subject} {finding.text}"
    yield from _shovels(move)
    if step in ("publishers", "finish"):
        yield from _stranded(move, step)
    if step == "finish":
        yield from _left(move)


def _target_alarms(move: Move) -> Iterator[str]:
    for node in move.target.nodes:
        for has_alarm, noun in ((node.has_memory_alarm, "memory"), (node.has_disk_alarm, "disk")):
            if has_alarm:
                yield f"node {node.name} of {move.target.product} has a {noun} alarm: it takes no messages"


def _shovels(move: Move) -> Iterator[str]:
    """Yield the shovels that should run and do not."""
    for shovel in move.present_shovels():
        status = move.status(shovel)
        if status is not None and status.state not in ("running", "flow"):
            why = f": {status.reason}" if status.reason else ""
            if status.state == "missing":
                why = f": run `fluffle migrate {'start' if move.direction == 'out' else 'back'}` again"
            yield f"the shovel of queue {shovel.queue!r} in {shovel.vhost!r} is {status.state}{why}"


def _stranded(move: Move, step: Step) -> Iterator[str]:
    """Yield queues whose messages would be where nothing consumes.

    The end needs no shovel for a queue that is empty: one that was interrupted has removed some of them.
    """
    consumers = move.consumers()
    for plan in move.plans():
        queue, count = plan.queue, consumers.get(plan.key, 0)
        if plan.way == "stays":
            continue
        where = f"queue {queue.name!r} in {queue.vhost!r}"
        if count:
            here = counted(count, "consumer")
            yield f"{where} has {here} at {move.source.product} still: publish there until they have moved"
        elif move.shovel(plan.key) not in move.history.shovels and (step != "finish" or queue.messages):
            yield f"{where} has no shovel: run `fluffle migrate cut-over consumers`"
        elif _loses_unless_consumed(queue) and move.consumed.get(plan.key):
            there = move.target.queues[plan.key]
            if not there.consumers:
                yield f"{where} drops messages that wait, and nothing consumes at {move.target.product}"


def _loses_unless_consumed(queue: Queue) -> bool:
    """True if messages that wait are dropped. Policies may do so, too, and are not looked at."""
    is_bounded = (
        queue.argument("x-max-length") is not None or queue.argument("x-max-length-bytes") is not None
    )
    is_dropped = is_bounded and queue.argument("x-overflow") in (None, "drop-head")
    return is_dropped or queue.argument("x-message-ttl") is not None


def _left(move: Move) -> Iterator[str]:
    """Yield what is at the source still."""
    for queue in move.queues():
        where = f"queue {queue.name!r} in {queue.vhost!r}"
        if queue.messages:
            yield f"{where} has {counted(queue.messages, 'message')} at {move.source.product}"
        if queue.publish_rate:
            yield f"{where} gets {queue.publish_rate:,.1f} messages/s at {move.source.product}"
    for queue in move.selection.takes(move.source.queues.values()):
        if queue.key not in move.target.queues and queue.messages and not queue.exclusive:
            yield (
                f"queue {queue.name!r} in {queue.vhost!r} has {queue.messages:,} messages, and is not at "
                f"{move.target.product}"
            )
    for (vhost, name), count in move.source.delayed.items():
        if not move.selection.vhosts or vhost in move.selection.vhosts:
            yield f"exchange {name!r} in {vhost!r} delays {counted(count, 'message')} at {move.source.product}"
    if not move.selection.pattern:
        for client in move.clients():
            yield f"connection {client.name!r} of {client.user} is at {move.source.product} ({client.role})"


def is_settled(before: dict[Key, Reading], now: dict[Key, Reading], passed_s: float) -> bool:
    """True if the same queues were empty at both looks, nothing came in between, and the looks are far enough apart."""
    return (
        passed_s >= SETTLED_S
        and before.keys() == now.keys()
        and all(
            before[key].messages == now[key].messages == 0 and before[key].publish == now[key].publish
            for key in now
        )
    )


def overtaking(move: Move) -> str:
    """Return a line about messages that newer ones will overtake when publishers move now; empty if there are none."""
    waiting = [queue for queue in move.queues() if queue.messages]
    count = sum(queue.messages for queue in waiting)
    if not count:
        return ""
    speed = sum(queue.out_rate - queue.publish_rate for queue in waiting)
    left = duration(count / speed) if speed > 0 else "an unknown time"
    return (
        f"{counted(count, 'message')} of {counted(len(waiting), 'queue')} are at {move.source.product} still ({left}): "
        "messages that are published after the move overtake them. Where order matters, stop those publishers, wait, "
        "and let them go then"
    )
