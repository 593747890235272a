"""The state that a member keeps of one origin of broadcasts: numbers, payloads not acknowledged yet, and marks of
disks.
"""

from collections import deque
from collections.abc import Sequence

from cluster.gm_ring.messages import NOTHING


class Origin:
    """One origin's broadcasts, seen from one member. Numbers are consecutive from 0; `NOTHING` is before them.

    last: the number of the last one that came; at the origin itself, of the last one that it made.
    acked: all members are known to have those up to this number; the member that answers for the origin has told so.
    retired: of a dead origin, at the member that answers for it: acknowledgements up to this number have come round.
    pending: the payloads after `acked` up to `last`.
    left_mark: those up to this number are on the disks of all members that count, as far as the left neighbour.
    disk: those up to this number are on this node's disk.   mark: the mark that was passed to the right.
    is_mine: this member answers for the origin.   is_rights: its right neighbour does.   is_dead: the origin is
    dead.
    """

    __slots__ = (
        "acked",
        "disk",
        "id",
        "is_dead",
        "is_mine",
        "is_rights",
        "last",
        "left_mark",
        "mark",
        "pending",
        "retired",
    )

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.last = self.acked = self.retired = NOTHING
        self.left_mark = self.disk = self.mark = NOTHING
        self.pending: deque[bytes] = deque()
        self.is_mine = self.is_rights = self.is_dead = False

    def append(self, upto: int, payloads: Sequence[bytes]) -> int:
        """Add the payloads that follow `last`.   Returns: their bytes."""
        self.pending.extend(payloads)
        self.last = upto
        return sum(map(len, payloads))

    def release(self, upto: int) -> int:
        """Forget payloads up to a number, which is between `acked` and `last`.   Returns: their bytes."""
        pending = self.pending
        if upto == self.last:
            size = sum(map(len, pending))
            pending.clear()
        else:
            size = sum(len(pending.popleft()) for _ in range(upto - self.acked))
        self.acked = upto
        return size

    def __str__(self) -> str:
        return f"{self.id}: last {self.last}, acked {self.acked}, retired {self.retired}, mark {self.mark}"
