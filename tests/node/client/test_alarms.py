"""amqp-behaviour §1.11, §7.1: which alarms are on, and who is told."""

from node.client.alarms import Alarms
from node.client.observer import Observer


class Listener(Observer):
    """Alarms, and what was heard of them, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.alarms = Alarms(
            "rabbit@here",
            self,
            on_first=lambda: self.heard.append(f"first: {self.alarms.reason}"),
            on_last=lambda: self.heard.append("last"),
        )

    def alarm_set(self, node: str, resource: str) -> None:
        self.heard.append(f"{resource} set on {node}")

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        self.heard.append(
            f"{resource} cleared on {node}" if is_last else f"{resource} cleared on {node} alone"
        )

    def news(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


def test_one_alarm() -> None:
    """§1.11: the reason, as long as there is one."""
    listener = Listener()
    alarms = listener.alarms
    assert not alarms.is_on
    assert alarms.reason == ""
    alarms.set("memory")
    assert alarms.is_on
    assert alarms.reason == "low on memory"
    assert listener.news() == ["memory set on rabbit@here", "first: low on memory"]
    alarms.clear("memory")
    assert not alarms.is_on
    assert listener.news() == ["memory cleared on rabbit@here", "last"]


def test_two_alarms() -> None:
    """§1.11: the reason names both, however they came; only the first and the last change anything."""
    listener = Listener()
    alarms = listener.alarms
    alarms.set("disk")
    assert alarms.reason == "low on disk"
    alarms.set("memory")
    assert alarms.reason == "low on disk & memory"
    assert alarms.short_of == ["disk", "memory"]
    alarms.clear("disk")
    assert alarms.reason == "low on memory"
    alarms.clear("memory")
    assert listener.news() == [
        "disk set on rabbit@here",
        "first: low on disk",
        "memory set on rabbit@here",
        "disk cleared on rabbit@here",
        "memory cleared on rabbit@here",
        "last",
    ]


def test_one_alarm_on_two_nodes() -> None:
    """An alarm is cleared across the cluster when no node has it any more, whatever other resources have."""
    listener = Listener()
    listener.alarms.set("memory")
    listener.alarms.set("memory", "rabbit@there")
    listener.alarms.set("disk", "rabbit@there")
    listener.news()
    listener.alarms.clear("memory")
    assert listener.news() == ["memory cleared on rabbit@here alone"]
    listener.alarms.clear("memory", "rabbit@there")
    assert listener.news() == ["memory cleared on rabbit@there"]


def test_what_is_known_is_no_news() -> None:
    """An alarm that is on can't be set, one that is off not be cleared."""
    listener = Listener()
    listener.alarms.clear("disk")
    assert listener.news() == []
    listener.alarms.set("disk")
    listener.news()
    listener.alarms.set("disk")
    assert listener.news() == []
