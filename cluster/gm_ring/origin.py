"""What a member knows of one origin of broadcasts: numbers, what is not acknowledged yet, and what is on disks."""

from collections import deque
from collections.abc import Sequence

from cluster.gm_ring.messages import NOTHING


class Origin:
    """One origin's broadcasts, seen from one member. Numbers are consecutive from 0; `NOTHING` is before them.

    last: the last one that came (of its own: that was made).
    acked: all members are known to have those up to here; of who answers for the origin: it has told so.
    retired: of a dead one, at who answers for it: acknowledgements up to here have come round.
    pending: the payloads after `acked` up to `last`.
    left_mark, disk, mark: on the disks of all that count as far as the left neighbour; on this node's;
        and what is told to the right.
    is_mine: this member answers for it.   is_rights: its right neighbour does.   is_dead: the origin is.
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
