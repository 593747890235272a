"""The newest events of mirrored queues are kept within bounds, and repeated ones are counted."""

from node.client.observer import MirrorEvent
from node.io.log_observer import LogObserver
from node.io.mirroring_events import KEPT, NEWS_MAX, NEWS_OF_A_QUEUE, MirroringEvents


def event(kind: str, queue: str = "q", *, node: str = "", former: str = "") -> MirrorEvent:
    return MirrorEvent("info", kind, "/", queue, f"{kind} of {queue}", node, former)


def test_the_newest_comes_first() -> None:
    events = MirroringEvents(clock=iter([1.0, 2.5]).__next__)
    events.note(event("leader-lost", former="a@h"))
    events.note(event("promotion", node="b@h", former="a@h"))
    assert [(each["time"], each["kind"]) for each in events.latest()] == [
        (2500, "promotion"),
        (1000, "leader-lost"),
    ]
    assert events.latest()[0] == {
        "time": 2500,
        "level": "info",
        "kind": "promotion",
        "vhost": "/",
        "name": "q",
        "node": "b@h",
        "former": "a@h",
        "text": "promotion of q",
    }


def test_it_is_bounded_and_counts_go_on() -> None:
    events = MirroringEvents()
    for number in range(KEPT + 10):
        events.note(event("sync-begun", f"q{number}"))
    assert len(events.latest()) == KEPT
    assert events.latest()[0]["name"] == f"q{KEPT + 9}"
    assert events.counts["sync-begun"] == KEPT + 10


def test_a_queue_keeps_its_news_in_a_flood_of_repairs() -> None:
    events = MirroringEvents()
    queues = [f"q{number}" for number in range(400)]
    for kind in (
        "leader-lost",
        "promotion",
        "mirror-added",
        "sync-begun",
        "sync-ended",
        "mirror-synchronised",
    ):
        for queue in queues:
            events.note(event(kind, queue, node="b@h", former="a@h"))
    for number in range(KEPT):
        events.note(event("sync-begun", f"other{number}"))
    for queue in queues:
        assert [each["kind"] for each in events.latest("/", queue)] == ["promotion", "leader-lost"]
        assert {each["name"] for each in events.latest("/", queue)} == {queue}
    assert len(events.latest()) == len(events.latest("/")) == KEPT
    assert events.latest("other") == []


def test_the_same_again_is_one_with_a_count() -> None:
    events = MirroringEvents(clock=iter([1.0, 2.0, 3.0, 4.0]).__next__)
    for _ in range(3):
        events.note(event("mirror-slow", node="b@h"))
    events.note(event("mirror-slow", node="c@h"))
    assert [(each["time"], each["node"], each.get("count")) for each in events.latest("/", "q")] == [
        (4000, "c@h", None),
        (3000, "b@h", 3),
    ]
    assert len(events.latest()) == 2
    assert events.counts["mirror-slow"] == 4


def test_news_are_bounded_and_the_queue_that_is_quiet_longest_goes_first() -> None:
    events = MirroringEvents()
    for number in range(NEWS_MAX // NEWS_OF_A_QUEUE + 1):
        for node in range(NEWS_OF_A_QUEUE + 2):
            events.note(event("transfer", f"q{number}", node=f"n{node}@h"))
    for number in range(KEPT):
        events.note(event("sync-begun", f"other{number}"))
    assert events.latest("/", "q0") == []
    assert [each["node"] for each in events.latest("/", "q1")] == [f"n{node}@h" for node in range(11, 1, -1)]


def test_what_counts_as_another_master() -> None:
    events = MirroringEvents()
    for kind in ("promotion", "transfer", "revived", "mirror-added", "data-loss-possible"):
        events.note(event(kind))
    assert events.master_changes == 3


def test_details_of_the_log_are_no_events() -> None:
    events = MirroringEvents()
    for kind in ("detail", "proposed"):
        LogObserver(events).mirror_event(event(kind))
    assert events.latest() == []
    LogObserver(events).mirror_event(event("stopped"))
    assert len(events.latest()) == 1
