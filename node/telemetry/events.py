"""Rows about events of nodes and mirrored queues, written immediately.

    MirrorEvent      promotion, revived ─► failover (cause crash) · transfer ─► promotion · synchronisations
    catalogue        MemberUp, MemberDown ─► view_change · ViewChanged by a step of a plan ─► plan_step_done
    alarms           of this node ─► alarm_set, alarm_clear

One node of the cluster reports an event of a mirrored queue; a step of a plan is reported by the master's. Each node
reports a change of members as it sees it.
Source: spark §2.5.
"""

from collections.abc import Callable
from typing import Any, Final

from node.broker.broker import Broker
from node.catalogue.events import (
    Event,
    MemberDown,
    MemberPut,
    MemberRemoved,
    MemberUp,
    PolicyChanged,
    QueueCreated,
    QueueDeleted,
    ViewChanged,
)
from node.client.observer import MirrorEvent, Observer

_MOVES_COPIES: Final = (
    MemberDown,
    MemberPut,
    MemberRemoved,
    MemberUp,
    PolicyChanged,
    QueueCreated,
    QueueDeleted,
    ViewChanged,
)
"""The events that change the topology."""

_STOPPED: Final = "stopped, "
"""The words by which the log line of an abandoned synchronisation is known."""

_NAMES: Final = {
    "promotion": "failover",
    "revived": "failover",
    "transfer": "promotion",
    "sync-begun": "sync_start",
    "mirror-synchronised": "sync_done",
    "sync-ended": "sync_abort",
}
"""The names of kinds of `MirrorEvent` here; the others add nothing to the rows of queues."""

_PLAN: Final = "plan:"
"""The begin of a cause that is a step of a plan."""

_CRASHES: Final = ("promotion", "revived")

Tell = Callable[[dict[str, Any]], None]


class EventObserver(Observer):
    """Watches one broker, once `begin` was called.

    tell: takes the fields of an event.   soon: has `release` called at the end of the turn.
    is_topology_new: whether copies have moved since it was last set to False.
    """

    def __init__(self, own: str, tell: Tell, soon: Callable[[], None]) -> None:
        self.is_topology_new = False
        self._soon = soon
        self._own = own
        self._tell = tell
        self._broker: Broker | None = None
        self._held: dict[str, Any] | None = None
        """A failover that is held back; the next event may say that it may have lost messages."""

    def begin(self, broker: Broker) -> None:
        """Begin to report: the broker runs, and events that it read at its start are over."""
        self._broker = broker

    def release(self) -> None:
        """Report the event that was held back."""
        held, self._held = self._held, None
        if held is not None:
            self._tell(held)

    # --- Observer ---

    def changed(self, change: Event) -> None:
        """Report a node that came or went; note whether the topology changed."""
        if self._broker is None:
            return
        self.is_topology_new = self.is_topology_new or isinstance(change, _MOVES_COPIES)
        if isinstance(change, MemberUp):
            self._tell({"event": "view_change", "to_node": change.member.name, "detail": {"is": "up"}})
        elif isinstance(change, MemberDown):
            self._tell({"event": "view_change", "from_node": change.member.name, "detail": {"is": "down"}})
        elif isinstance(change, ViewChanged) and change.cause.startswith(_PLAN):
            view = change.after.view
            if view is not None and view.master_node == self._own and (step := _step(change)) is not None:
                self._tell({"event": "plan_step_done", "cause": change.cause, **step})

    def alarm_set(self, node: str, resource: str) -> None:
        """Report an alarm of this node. Other nodes report their own."""
        if node == self._own and self._broker is not None:
            self._tell({"event": "alarm_set", "detail": {"resource": resource}})

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """Report the end of an alarm of this node."""
        if node == self._own and self._broker is not None:
            self._tell({"event": "alarm_clear", "detail": {"resource": resource}})

    def mirror_event(self, event: MirrorEvent) -> None:
        """Report an event of a mirrored queue, if rows of queues don't say as much."""
        if self._broker is None:
            return
        held = self._held
        is_of_held = held is not None and (held["vhost"], held["queue"]) == (event.vhost, event.queue)
        if event.kind == "data-loss-possible" and held is not None and is_of_held:
            held["unsynced_promotion"] = True
            return
        self.release()
        name = _NAMES.get(event.kind)
        if name is None or (event.kind == "sync-ended" and _STOPPED not in event.text):
            return
        fields = self._fields(self._broker, event, name)
        if event.kind == "promotion":
            self._held = fields
            self._soon()
        else:
            self._tell(fields)

    def _fields(self, broker: Broker, event: MirrorEvent, name: str) -> dict[str, Any]:
        record = broker.catalogue.queue(event.vhost, event.queue)
        view = None if record is None else record.view
        is_move = name in ("failover", "promotion")
        return {
            "event": name,
            "vhost": event.vhost,
            "queue": event.queue,
            "from_node": event.former or None,
            "to_node": event.node or None,
            "epoch_after": view.since if view is not None and is_move else None,
            "cause": event.cause or ("crash" if event.kind in _CRASHES else None),
            "unsynced_promotion": False if is_move else None,
            "detail": {"kind": event.kind, "text": event.text},
        }


def _step(change: ViewChanged) -> dict[str, Any] | None:
    """Return what a step of a plan did to the copies of a queue; None if it changed only the placement."""
    before, after = change.before.view, change.after.view
    if before is None or after is None or before.version == after.version:
        return None
    was = {member.id: member.node for member in before.ring}
    now = {member.id: member.node for member in after.ring}
    added = [node for id_, node in now.items() if id_ not in was]
    dropped = [node for id_, node in was.items() if id_ not in now]
    fields: dict[str, Any] = {"vhost": change.after.vhost, "queue": change.after.name}
    if before.master != after.master:
        moved = {"from_node": before.master_node, "to_node": after.master_node, "epoch_after": after.since}
        return {**fields, **moved, "detail": {"action": "promote"}}
    if added:
        return {**fields, "to_node": added[0], "detail": {"action": "add_mirror"}}
    if dropped:
        return {**fields, "from_node": dropped[0], "detail": {"action": "drop_mirror"}}
    return None
