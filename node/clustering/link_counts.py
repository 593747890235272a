"""These counters have the traffic to each other node, how often its link came up, and why the link broke last."""

from collections import Counter


class LinkCounts:
    """The counters of one process, by the other node's name.

    frames, frame_bytes, packets: sent for mirrored queues, counted while telemetry is on. A frame has all packets of a
    turn.
    connects: how often a link came up.   errors: why the link went down last.
    """

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.frame_bytes: Counter[str] = Counter()
        self.packets: Counter[str] = Counter()
        self.connects: Counter[str] = Counter()
        self.errors: dict[str, str] = {}
        self._congested_at: dict[str, float] = {}
        self._congested_s: dict[str, float] = {}

    def sent(self, name: str, size: int) -> None:
        """Count a frame of `size` bytes that is sent to a node."""
        self.frames[name] += 1
        self.frame_bytes[name] += size

    def gathered(self, name: str, count: int) -> None:
        """Count packets that share the next frames to a node."""
        self.packets[name] += count

    def congested(self, name: str, now: float) -> None:
        """Note that the data stream to a node is congested. Idempotent.   now: seconds, monotonic."""
        self._congested_at.setdefault(name, now)

    def relieved(self, name: str, now: float) -> None:
        """Note that the data stream to a node is no longer congested, or was closed. Idempotent."""
        since = self._congested_at.pop(name, None)
        if since is not None:
            self._congested_s[name] = self._congested_s.get(name, 0.0) + now - since

    def congested_ms(self, name: str, now: float) -> int:
        """Return for how long the data stream to a node has been congested in all, until now, in ms."""
        present_s = now - self._congested_at.get(name, now)
        return round((self._congested_s.get(name, 0.0) + present_s) * 1000)
