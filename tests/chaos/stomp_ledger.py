"""A ledger of STOMP messages: which were sent, which have a receipt, and which came."""

from collections import Counter


class StompLedger:
    """The messages of all publishers.   A message is its publisher's name and a number, which is its body."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.confirmed: set[bytes] = set()
        self.taken: Counter[bytes] = Counter()
        self.strangers: list[bytes] = []

    def send(self, publisher: str) -> bytes:
        """Note the next message of a publisher.   Returns: its body."""
        self.sent[publisher] += 1
        return b"%b/%d" % (publisher.encode(), self.sent[publisher])

    def confirm(self, body: bytes) -> None:
        """Note that a message has its receipt."""
        self.confirmed.add(body)

    def take(self, body: bytes) -> None:
        """Note that a message came."""
        publisher, _, number = body.decode("utf-8", "replace").rpartition("/")
        if not number.isdecimal() or not 1 <= int(number) <= self.sent[publisher]:
            self.strangers.append(body)
        else:
            self.taken[body] += 1

    @property
    def missing(self) -> list[bytes]:
        """The messages with a receipt that did not come."""
        return sorted(self.confirmed - self.taken.keys())

    def problems(self) -> list[tuple[str, str]]:
        """Return the faults: the name of a number of `Count`, and the text."""
        lost = [("lost", f"STOMP: {body.decode()}") for body in self.missing]
        return lost + [("unexpected", f"STOMP: {body[:40]!r}, which nobody sent") for body in self.strangers]

    def summary(self) -> str:
        """Return the figures in words."""
        again = sum(count - 1 for count in self.taken.values())
        return (
            f"STOMP: {len(self.confirmed):,} messages with receipts, lost {len(self.missing):,}, "
            f"came again {again:,}"
        )
