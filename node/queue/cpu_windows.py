"""CPU time of the broker's thread, measured in windows and divided among the queues that worked in them.

    end of a turn ──────────── window ─────────────► end of the next turn ── four turns without ──► next window
          sockets are read, frames of clients and of other nodes parsed, queues work, output is written

Each fifth turn of the loop is a window. What queues do in it is timed with the thread's CPU clock, and belongs to these
queues. The rest of the thread's time in the window (system calls of sockets, parsing, writing, preparing jobs for the
disk) is divided among the queues by how often they worked and by the bytes they moved. What was done for clients of
this node is kept apart, as it stays here when the queue's master moves. All times count for five.

Source: spark §2.3 (cpu_us_total); docs/telemetry.md, "CPU of queues".
"""

from collections.abc import Callable
from typing import Final, Protocol

EVERY: Final = 5
"""Each fifth turn is a window and counts for five: a look at a thread's CPU clock takes half a microsecond. It is a
prime, as traffic has patterns."""

WORK_BYTES: Final = 32 * 1024
"""One piece of work costs as much beside the queue as this many bytes: a read or write of a socket with its turn of
the loop takes some 15 us, and copying 32 KiB through a socket of this machine about as much again."""

LEAD_NS: Final = 200_000
"""The most time before the first work in a window that counts as the work's: waking up, reading and parsing. What is
above it was spent on timers while there was no traffic."""


class CostAccount(Protocol):
    """The account that the costs of one queue are added to.

    cpu_ns: time that this copy of the queue took.   client_ns: time that this node's clients of the queue took.
    """

    cpu_ns: int
    client_ns: int

    def __hash__(self) -> int: ...


class CpuWindows:
    """The windows of one broker.   clock: CPU time of the calling thread in ns, monotonic.

    is_open: a window is open; the methods but `end_turn` are called only then.
    clients_ns: time that the clients of this node took, of all queues.
    remote_node: the present work came from this other node, for one of its clients; empty: it is this node's.
    """

    __slots__ = (
        "_began",
        "_clients",
        "_clock",
        "_copies",
        "_idle_ns",
        "_is_idle",
        "_timed_ns",
        "_turns_left",
        "clients_ns",
        "is_open",
        "remote_node",
    )

    def __init__(self, clock: Callable[[], int]) -> None:
        self.is_open = False
        self.remote_node = ""
        self.clients_ns = 0
        self._clock = clock
        self._turns_left = EVERY - 1
        self._began = 0
        self._timed_ns = 0
        """The time in this window that is in the account of a queue already."""
        self._idle_ns = 0
        self._is_idle = True
        self._copies: dict[CostAccount, int] = {}
        self._clients: dict[CostAccount, int] = {}

    def end_turn(self) -> None:
        """Note the end of a turn of the loop: the window is closed, or the next one is opened when it is time."""
        if self.is_open:
            self._close()
        elif self._turns_left > 1:
            self._turns_left -= 1
        else:
            self.is_open = self._is_idle = True
            self._timed_ns = self._idle_ns = 0
            self._began = self._clock()

    def begin(self) -> None:
        """Note that work for queues begins, before it is known for which ones: frames of a node are to be decoded."""
        if self._is_idle:
            self._is_idle = False
            self._idle_ns = max(0, self._clock() - self._began - LEAD_NS)

    def enter(self) -> int:
        """Begin to time work of a queue. Returns: a mark for `leave`. Work may be within other work."""
        now = self._clock()
        if self._is_idle:
            self._is_idle = False
            self._idle_ns = max(0, now - self._began - LEAD_NS)
        return now - self._timed_ns

    def leave(self, account: CostAccount, mark: int) -> None:
        """Add the time since `enter` to an account, without that of the work within."""
        spent_ns = self._clock() - self._timed_ns - mark
        self._timed_ns += spent_ns
        account.cpu_ns += spent_ns * EVERY

    def worked(self, account: CostAccount, size: int, *, for_client: bool) -> None:
        """Note work that costs time outside of the queue, too.   size: the bytes that it moved.

        for_client: it was for a client of this node; False: for another node or the disk.
        """
        shares = self._clients if for_client else self._copies
        shares[account] = shares.get(account, 0) + WORK_BYTES + size

    def _close(self) -> None:
        self.is_open = False
        self._turns_left = EVERY - 1
        if self._is_idle:
            return  # the node's own work
        rest_ns = self._clock() - self._began - self._timed_ns - self._idle_ns
        weights = sum(self._copies.values()) + sum(self._clients.values())
        if rest_ns > 0 and weights:
            rest_ns *= EVERY
            for account, weight in self._copies.items():
                account.cpu_ns += rest_ns * weight // weights
            for account, weight in self._clients.items():
                share_ns = rest_ns * weight // weights
                account.client_ns += share_ns
                self.clients_ns += share_ns
        self._copies.clear()
        self._clients.clear()
