"""What went over the links to other nodes, and how often they broke, by the nodes' names."""

from collections import Counter


class LinkCounts:
    """Of one process.

    frames, frame_bytes: of mirrored queues, counted while telemetry is on.   connects: how often a link came up.
    errors: why it went down last.
    """

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.frame_bytes: Counter[str] = Counter()
        self.connects: Counter[str] = Counter()
        self.errors: dict[str, str] = {}

    def sent(self, name: str, size: int) -> None:
        """A frame goes to a node."""
        self.frames[name] += 1
        self.frame_bytes[name] += size
