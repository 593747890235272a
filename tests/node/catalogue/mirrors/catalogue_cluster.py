"""A catalogue with nodes that are up, and a queue `q` of uid 1."""

from typing import TypeVar

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, NodeUp, PutMember, PutVhost, Refused, SetPolicy
from node.catalogue.events import Event
from node.catalogue.mirrors.views import View
from node.catalogue.records import Json, MemberType, QueueRecord

ResultT = TypeVar("ResultT")


def up(name: str) -> NodeUp:
    return NodeUp(name, f"id of {name}", f"{name}:2")


class CatalogueCluster:
    """The nodes are incarnations 1, 2, 3, …   catalogue: another one than a new one."""

    def __init__(self, *names: str, catalogue: Catalogue | None = None) -> None:
        self.catalogue = catalogue or Catalogue()
        self.do(PutVhost("/"))
        for name in names:
            self.join(name)
        self.take()

    def do(self, command: Command[ResultT]) -> ResultT:
        """Apply what is not refused."""
        result = self.catalogue.apply(command)
        assert not isinstance(result, Refused), (command, result)
        return result

    def take(self) -> list[Event]:
        return self.catalogue.take_events()

    def join(self, name: str, type_: MemberType = "disc") -> None:
        self.do(PutMember(name, f"{name}:1", f"id of {name}", type_))
        self.do(up(name))

    def policy(self, **keys: Json) -> None:
        """A policy for all queues."""
        self.do(SetPolicy("/", "p", "^q", {key.replace("_", "-"): value for key, value in keys.items()}))
        self.take()

    @property
    def queue(self) -> QueueRecord:
        queue = self.catalogue.queue("/", "q")
        assert queue is not None
        return queue

    @property
    def view(self) -> View:
        view = self.queue.view
        assert view is not None
        return view

    @property
    def nodes(self) -> list[str]:
        """Return the nodes of the ring's members."""
        return [member.node for member in self.view.ring]
