"""Members tell each other what they have applied, by a link or by way of the leader."""

from cluster.metadata.notices import Notices
from cluster.metadata.raft_pb2 import Applied


class Scene:
    def __init__(self) -> None:
        self.said: list[tuple[str, int, str, str]] = []
        self.notices = Notices(
            lambda peer, notice: self.said.append((peer, notice.index, notice.receiver, notice.member))
        )
        self.notices.tell(1, set(), {"b", "c"}, "b", 0.0)
        self.said.clear()

    def tell(
        self, index: int, *submitters: str, links: str = "bc", leader: str = "b", now: float = 0.1
    ) -> None:
        self.notices.tell(index, set(submitters), set(links), leader, now)


def test_who_submitted_hears_at_once() -> None:
    scene = Scene()
    scene.tell(2, "c")
    assert scene.said == [("c", 2, "", "")]
    scene.tell(2, "c")
    assert scene.said == [("c", 2, "", "")] * 2


def test_all_hear_now_and_then() -> None:
    scene = Scene()
    scene.tell(2)
    assert scene.said == []
    assert scene.notices.due(2) == 5.0
    scene.tell(2, now=5.0)
    assert scene.said == [("b", 2, "", ""), ("c", 2, "", "")]
    assert scene.notices.due(2) == float("inf"), "there is no news"


def test_without_a_link_it_goes_by_way_of_the_leader() -> None:
    """A notice to a node without a link goes by the leader, again whenever all are told, until there is a link."""
    scene = Scene()
    scene.tell(2, "c", links="b")
    assert scene.said == [("b", 2, "c", "")]
    scene.said.clear()
    scene.tell(2, links="b", now=5.0)
    assert scene.said == [("b", 2, "", ""), ("b", 2, "c", "")]
    scene.said.clear()
    scene.tell(3, now=10.0)
    assert scene.said == [("b", 3, "", ""), ("c", 3, "", "")]


def test_the_leader_passes_it_on() -> None:
    scene = Scene()
    scene.notices.relay("d", Applied(index=7, receiver="c"))
    assert scene.said == [("c", 7, "", "d")]


def test_without_a_leader_it_waits() -> None:
    scene = Scene()
    scene.notices.tell(2, {"c"}, {"b"}, None, 0.1)
    assert scene.said == []
