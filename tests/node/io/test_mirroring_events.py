"""What is kept of what becomes of mirrored queues."""

from node.broker.observer import MirrorEvent
from node.io.log_observer import LogObserver
from node.io.mirroring_events import KEPT, MirroringEvents


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
