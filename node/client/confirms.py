"""Publisher confirms of one channel.

Every publish gets a number; queues settle them, at once or later, in any order. What was settled while a read
was worked on is flushed together, in as few frames as the rules allow.
Source: amqp-behaviour §4.3.
"""

from bisect import bisect_right

from node.amqp.methods import BasicAck, BasicNack
from node.client.counters import ExchangePair

Range = tuple[int, int]
"""First and last number, both included."""


class Spans:
    """The exchanges that publishes with outstanding confirms went to.

    There is one span for consecutive publishes to one exchange. Settled spans are removed, so there are never more
    spans than outstanding publishes.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[tuple[int, int, ExchangePair]] = []  # last number, how many are open, whose

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, first: int, count: int, pair: ExchangePair) -> None:
        """Note the exchange of the publishes from `first` on; their numbers follow all others."""
        if self._spans and self._spans[-1][0] == first - 1 and self._spans[-1][2] is pair:
            last, left, _ = self._spans[-1]
            self._spans[-1] = last + count, left + count, pair
        else:
            self._starts.append(first)
            self._spans.append((first + count - 1, count, pair))

    def settle(self, first: int, last: int, *, is_confirmed: bool) -> None:
        """Count the publishes from first to last, which were open, as confirmed or refused."""
        at = max(0, bisect_right(self._starts, first) - 1)
        while at < len(self._spans) and self._starts[at] <= last:
            end, left, pair = self._spans[at]
            count = max(0, min(end, last) + 1 - max(self._starts[at], first))
            if is_confirmed:
                pair.confirm += count
            if left == count:
                del self._spans[at], self._starts[at]
            else:
                self._spans[at] = end, left - count, pair
                at += 1


class Confirms:
    """Numbers of publishes: outstanding, confirmed, rejected. Outstanding ranges are disjoint and in order.

    spans: is told which publishes are settled; None: confirms are not counted by exchange.
    """

    __slots__ = ("_acked", "_nacked", "_next", "_outstanding", "_rejected", "spans")

    def __init__(self) -> None:
        self._next = 1
        self._outstanding: list[Range] = []
        self._acked: list[Range] = []
        self._nacked: list[Range] = []
        self._rejected = 0
        self.spans: Spans | None = None

    def expect(self, count: int) -> int:
        """Number `count` publishes, which wait to be settled; return the first number."""
        first = self._next
        self._next += count
        _append(self._outstanding, first, self._next - 1)
        return first

    def confirm_at_once(self, count: int) -> None:
        """Number `count` publishes that are safe already."""
        first = self._next
        self._next += count
        _append(self._acked, first, self._next - 1)
        if self.spans is not None:
            self.spans.settle(first, self._next - 1, is_confirmed=True)

    def confirm(self, first: int, last: int) -> None:
        """Settle the publishes from first to last as safe."""
        for low, high in self._settle(first, last):
            _append(self._acked, low, high)
            if self.spans is not None:
                self.spans.settle(low, high, is_confirmed=True)

    def reject(self, first: int, last: int) -> None:
        """Settle the publishes from first to last as refused."""
        for low, high in self._settle(first, last):
            _append(self._nacked, low, high)
            self._rejected += high + 1 - low
            if self.spans is not None:
                self.spans.settle(low, high, is_confirmed=False)

    @property
    def outstanding(self) -> int:
        """The number of publishes that wait to be settled."""
        return sum(last - first + 1 for first, last in self._outstanding)

    @property
    def first_outstanding(self) -> int:
        """The number of the first publish that waits to be settled; the next number if none does."""
        return self._outstanding[0][0] if self._outstanding else self._next

    @property
    def rejected(self) -> int:
        """The number of publishes that were refused."""
        return self._rejected

    @property
    def numbered(self) -> int:
        """The number of publishes so far."""
        return self._next - 1

    @property
    def confirmed(self) -> int:
        """The number of publishes that are safe."""
        return self.numbered - self.outstanding - self._rejected

    def _settle(self, first: int, last: int) -> list[Range]:
        """Remove a range from the outstanding ones; return the part of it that was outstanding."""
        kept: list[Range] = []
        settled: list[Range] = []
        for low, high in self._outstanding:
            cut_low, cut_high = max(low, first), min(high, last)
            if cut_low > cut_high:
                kept.append((low, high))
                continue
            settled.append((cut_low, cut_high))
            if low < cut_low:
                kept.append((low, cut_low - 1))
            if cut_high < high:
                kept.append((cut_high + 1, high))
        self._outstanding = kept
        return settled

    def flush(self) -> list[BasicAck | BasicNack]:
        """Return the frames for the client: acks before nacks, each kind with one `multiple` for all below its
        cutoff.

        The cutoff is the lowest number that `multiple` must not cover: still outstanding, or settled the other way.
        """
        if not self._acked and not self._nacked:
            return []
        acked, nacked = self._acked, self._nacked
        self._acked, self._nacked = [], []
        unconfirmed = self._outstanding[0][0] if self._outstanding else self._next
        methods: list[BasicAck | BasicNack] = []
        if len(acked) == 1 and acked[0][0] == acked[0][1]:
            methods.append(BasicAck(acked[0][0]))
        else:
            cutoff = min([unconfirmed, *(first for first, _ in nacked)])
            methods += [BasicAck(tag, multiple) for tag, multiple in _coalesce(acked, cutoff)]
        if nacked:
            cutoff = min([unconfirmed, *(first for first, _ in acked)])
            # RabbitMQ's nacks have the requeue bit set, the protocol's default (§0.4).
            methods += [BasicNack(tag, multiple, requeue=True) for tag, multiple in _coalesce(nacked, cutoff)]
        return methods


def _append(ranges: list[Range], first: int, last: int) -> None:
    """Add a range, joined to the last one if it follows it."""
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))


def _coalesce(ranges: list[Range], cutoff: int) -> list[tuple[int, bool]]:
    """Tags and `multiple` flags for settled ranges: one frame for all below the cutoff, one for each of the rest."""
    below = [min(last, cutoff - 1) for first, last in ranges if first < cutoff]
    frames = [(max(below), True)] if below else []
    frames += [(tag, False) for first, last in sorted(ranges) for tag in range(max(first, cutoff), last + 1)]
    return frames
