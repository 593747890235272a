"""These counters have the traffic to each other node, how often its link came up, and why the link broke last."""

from collections import Counter


class LinkCounts:
    """The counters of one process, by the other node's name.

    frames, frame_bytes: sent for mirrored queues, counted while telemetry is on.   connects: how often a link came
    up.
    errors: why the link went down last.
    """

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.frame_bytes: Counter[str] = Counter()
        self.connects: Counter[str] = Counter()
        self.errors: dict[str, str] = {}

    def sent(self, name: str, size: int) -> None:
        """Count a frame of `size` bytes that is sent to a node."""
        self.frames[name] += 1
        self.frame_bytes[name] += size
