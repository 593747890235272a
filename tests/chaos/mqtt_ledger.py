"""A ledger of MQTT messages: what publishers sent and had confirmed, and how often each subscriber got it.

A message is its publisher's name and a number, which is its payload. All subscribers of a ledger want all messages.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Story:
    """A publisher's messages.   sent: the highest number.   confirmed: those that the broker has taken."""

    sent: int = 0
    confirmed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Taken:
    """The messages of one publisher that a subscriber got.

    last: the highest number that came.   late: those that came for the first time behind higher ones.
    """

    counts: Counter[int] = field(default_factory=Counter)
    last: int = 0
    late: list[str] = field(default_factory=list)


class MqttLedger:
    """The messages of one QoS.   is_once: a second copy is a fault."""

    def __init__(self, qos: int) -> None:
        self.qos = qos
        self.is_once = qos == 2
        self.stories: dict[str, Story] = {}
        self.subscribers: dict[str, dict[str, Taken]] = {}
        self.strangers: list[str] = []

    # --- what happens ---

    def send(self, publisher: str) -> bytes:
        """Note the next message of a publisher.   Returns: its payload."""
        story = self.stories.setdefault(publisher, Story())
        story.sent += 1
        return b"%s/%d" % (publisher.encode(), story.sent)

    def confirm(self, publisher: str, number: int) -> None:
        """Note that the broker has taken a message."""
        self.stories[publisher].confirmed.add(number)

    def subscribe(self, subscriber: str) -> None:
        """Note a subscriber, who wants all that is sent from now on."""
        self.subscribers.setdefault(subscriber, {})

    def take(self, subscriber: str, payload: bytes) -> None:
        """Note that a subscriber got a message."""
        publisher, _, digits = payload.decode("ascii", "replace").rpartition("/")
        story = self.stories.get(publisher)
        if story is None or not digits.isdecimal() or not 1 <= int(digits) <= story.sent:
            self.strangers.append(f"{subscriber} got {payload[:40]!r}, which nobody sent")
            return
        number = int(digits)
        taken = self.subscribers[subscriber].setdefault(publisher, Taken())
        taken.counts[number] += 1
        if taken.counts[number] == 1:
            if number < taken.last:
                taken.late.append(f"{number} behind {taken.last}")
            taken.last = max(taken.last, number)

    # --- what became of it ---

    @property
    def confirmed(self) -> int:
        """The number of messages that the broker has taken."""
        return sum(len(story.confirmed) for story in self.stories.values())

    def missing(self, subscriber: str) -> list[str]:
        """Return the confirmed messages that a subscriber did not get."""
        got = self.subscribers[subscriber]
        nothing = Taken()
        return [
            f"{publisher}/{number}"
            for publisher, story in self.stories.items()
            for number in sorted(story.confirmed - got.get(publisher, nothing).counts.keys())
        ]

    def again(self, subscriber: str) -> list[str]:
        """Return the messages that a subscriber got more than once."""
        return [
            f"{publisher}/{number}"
            for publisher, taken in self.subscribers[subscriber].items()
            for number, count in taken.counts.items()
            if count > 1
        ]

    def is_complete(self) -> bool:
        """Return whether all subscribers have all that was confirmed."""
        return not any(self.missing(each) for each in self.subscribers)

    def problems(self) -> list[tuple[str, str]]:
        """Return the faults: the name of a number of `Count`, and the text."""
        found = [("unexpected", text) for text in self.strangers]
        for subscriber, publishers in self.subscribers.items():
            found += [
                ("lost", f"MQTT QoS {self.qos}: {each} to {subscriber}") for each in self.missing(subscriber)
            ]
            if self.is_once:
                again = self.again(subscriber)
                found += [("duplicates", f"MQTT QoS {self.qos}: {each} to {subscriber}") for each in again]
            found += [
                ("disorder", f"MQTT QoS {self.qos}: {publisher} to {subscriber}: {each}")
                for publisher, taken in publishers.items()
                for each in taken.late
            ]
        return found

    def summary(self) -> str:
        """The figures in words."""
        lost = sum(len(self.missing(each)) for each in self.subscribers)
        again = sum(len(self.again(each)) for each in self.subscribers)
        return f"MQTT QoS {self.qos}: {self.confirmed:,} confirmed, lost {lost:,}, more than once {again:,}"
