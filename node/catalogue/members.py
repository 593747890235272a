"""The nodes of the cluster and which of them are up: the part of the catalogue about the cluster itself.

Each change appends what it did to the catalogue's events. The catalogue decides what happens to a node's
queues.
Source: reliability §4.0 (incarnations), §2.5 (which nodes may leave).
"""

from dataclasses import replace

from node.amqp.constants import ReplyCode
from node.catalogue.commands import NodeUp, PutMember, Refused, SetDraining
from node.catalogue.events import Event, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.catalogue.records import ClusterMember


class Members:
    """The nodes by name.   events: the catalogue's list of events, to which each change is appended."""

    def __init__(self, events: list[Event]) -> None:
        self.by_name: dict[str, ClusterMember] = {}
        self.next_incarnation = 1
        self.changes = 0
        """A counter that rises whenever a node comes, goes, starts, ends, drains or changes its type or address."""
        self._events = events

    @property
    def is_any_up(self) -> bool:
        """True if any node is up."""
        return any(member.is_up for member in self.by_name.values())

    def put(self, command: PutMember) -> bool | Refused:
        """Add the node, or change its address or type; return True if it is new.

        Refused (406) when another data directory has the name.
        """
        known = self.by_name.get(command.name)
        if known is not None and known.node_id != command.node_id:
            return _taken(command.name)
        member = ClusterMember(command.name, command.address, command.node_id, command.type)
        if known is not None:
            member = replace(known, address=command.address, type=command.type)
        if member != known:
            self._changed(member, MemberPut(member))
        return known is None

    def remove(self, name: str) -> None:
        """Forget a member that is there and down."""
        self.changes += 1
        self._events.append(MemberRemoved(self.by_name.pop(name)))

    def find(self, command: NodeUp) -> ClusterMember | Refused:
        """Return the member that has started.

        Refused when it is no member (404) or has another data directory (406).
        """
        member = self.by_name.get(command.name)
        if member is None:
            return Refused(ReplyCode.NOT_FOUND, f"node '{command.name}' is not a member of the cluster")
        return member if member.node_id == command.node_id else _taken(command.name)

    def up(self, member: ClusterMember, address: str) -> int:
        """Count a member as up under a new incarnation, which is returned."""
        member = replace(member, address=address, incarnation=self.next_incarnation, is_up=True)
        self.next_incarnation += 1
        self._changed(member, MemberUp(member))
        return member.incarnation

    def down(self, member: ClusterMember) -> None:
        """Count a member that is up as down."""
        self._changed(replace(member, is_up=False), MemberDown(member))

    def set_draining(self, command: SetDraining) -> bool:
        """Put the node into maintenance mode, or take it out; return False when there is no such node."""
        member = self.by_name.get(command.name)
        if member is None:
            return False
        if member.is_draining is not command.is_draining:
            member = replace(member, is_draining=command.is_draining)
            self._changed(member, MemberPut(member))
        return True

    def _changed(self, member: ClusterMember, event: Event) -> None:
        self.changes += 1
        self.by_name[member.name] = member
        self._events.append(event)


def _taken(name: str) -> Refused:
    return Refused(
        ReplyCode.PRECONDITION_FAILED,
        f"node '{name}' is a member of the cluster with another data directory: if that one is lost, "
        f"use forget_cluster_node {name} and join again",
    )
