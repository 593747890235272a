"""A broker's connections to others count what telemetry tells of them."""

from types import SimpleNamespace
from typing import cast

from cluster.transport.interface import Topic
from node.catalogue.records import ClusterMember
from node.clustering.link_counts import LinkCounts
from node.clustering.peer_state import Around, Known, PeerState, Ways


class Transport:
    """A transport whose streams are congested when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Topic, bytes]] = []
        self.congested: set[str] = set()

    def send_data(self, name: str, topic: Topic, frame: bytes) -> None:
        self.sent.append((name, topic, frame))

    def is_congested(self, name: str) -> bool:
        return name in self.congested

    def close_data(self, name: str) -> None:
        pass

    def connect(self, name: str, address: str) -> None:
        pass

    def disconnect(self, name: str) -> None:
        pass


class Counts(LinkCounts):
    """Counters that remember which streams are congested."""

    def __init__(self) -> None:
        super().__init__()
        self.now: set[str] = set()

    def congested(self, name: str, now: float) -> None:
        self.now.add(name)

    def relieved(self, name: str, now: float) -> None:
        self.now.discard(name)


class Bench:
    """The connections of a node to two others, without a broker."""

    def __init__(self) -> None:
        self.transport, self.counts = Transport(), Counts()
        known = SimpleNamespace(name="a", incarnation=1, members=dict[str, ClusterMember]())
        ways = SimpleNamespace(
            transport=self.transport, link_counts=self.counts, forget_link=lambda name: None
        )
        self.peers = PeerState(cast(Known, known), cast(Ways, ways), cast(Around, SimpleNamespace()))
        self.peers.sync({"b": "b:1", "c": "c:1"})


def test_frames_of_both_kinds_are_watched_and_those_of_rings_counted() -> None:
    bench = Bench()
    bench.peers._send_watched("b", b"one")
    bench.transport.congested.update("bc")
    bench.peers._send_counted("b", b"three")
    bench.peers._send_watched("c", b"two")
    assert bench.transport.sent == [
        ("b", Topic.REMOTE, b"one"),
        ("b", Topic.RING, b"three"),
        ("c", Topic.REMOTE, b"two"),
    ]
    assert (bench.counts.frames, bench.counts.frame_bytes) == ({"b": 1}, {"b": 5})
    assert bench.counts.now == {"b", "c"}


def test_a_congestion_ends_with_relief_or_with_the_link() -> None:
    """Frames for a node that left will never be sent, so the congestion that they were must not count on."""
    bench = Bench()
    bench.transport.congested.update("bc")
    bench.peers._send_watched("b", b"x")
    bench.peers._send_watched("c", b"x")
    bench.peers.relieved("b")
    assert bench.counts.now == {"c"}
    bench.peers.sync({"b": "b:1"})
    assert bench.counts.now == set()


def test_a_congestion_ends_with_its_stream() -> None:
    """A node that came back has another stream, on which nothing waits."""
    bench = Bench()
    bench.peers._streams["b"] = (1, 2)
    bench.transport.congested.add("b")
    bench.peers._send_watched("b", b"x")
    bench.peers.close()
    assert bench.counts.now == set()
