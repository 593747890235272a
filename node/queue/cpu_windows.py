"""CPU time of the broker's thread, measured in windows and divided among the queues that worked in them.

    end of a turn ──────────── window ─────────────► end of the next turn ── four turns without ──► next window
          sockets are read, frames of clients and of other nodes parsed, queues work, output is written

Each fifth turn of the loop is a window. What queues do in it is timed with the thread's CPU clock, and belongs to these
queues. The rest of the thread's time in the window (system calls of sockets, parsing, writing, preparing jobs for the
disk) is divided among the queues by how often they worked and by the bytes they moved. What was done for clients of
this node is kept apart, as it stays here when the queue's master moves.

All times count for five at first, then for what windows have been of the thread's time in the last round of windows. A
window takes more time than another turn, as it measures, so five would give queues more than the thread has.

Source: spark §2.3 (cpu_us_total); docs/telemetry.md, "CPU of queues".
"""

from collections.abc import Callable
from typing import Final, Protocol

EVERY: Final = 5
"""Each fifth turn is a window and counts for five at first: a look at a thread's CPU clock takes half a microsecond. It
is a prime, as traffic has patterns."""

ROUND: Final = 200
"""After so many windows it is known anew for how much they count: half a second to some minutes."""

WEIGHT_MAX: Final = 4.0 * EVERY
"""The most for which a window counts: other turns had a single long piece of work then, such as a long list."""

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
        "_inside_ns",
        "_is_idle",
        "_round_began",
        "_timed_ns",
        "_turns_left",
        "_weight",
        "_windows_left",
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
        self._weight = float(EVERY)
        """A time in a window counts for so many."""
        self._round_began: int | None = None  # the thread that makes the windows may be another one
        self._inside_ns = 0
        """The time of all windows of this round."""
        self._windows_left = ROUND
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
            if self._round_began is None:
                self._round_began = self._began

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
        account.cpu_ns += round(spent_ns * self._weight)

    def worked(self, account: CostAccount, size: int, *, for_client: bool) -> None:
        """Note work that costs time outside of the queue, too.   size: the bytes that it moved.

        for_client: it was for a client of this node; False: for another node or the disk.
        """
        shares = self._clients if for_client else self._copies
        shares[account] = shares.get(account, 0) + WORK_BYTES + size

    def _close(self) -> None:
        self.is_open = False
        self._turns_left = EVERY - 1
        now = self._clock()
        window_ns = now - self._began
        if not self._is_idle:  # else it was the node's own work
            self._divide(window_ns - self._timed_ns - self._idle_ns)
        self._inside_ns += window_ns
        self._windows_left -= 1
        if not self._windows_left:
            self._end_round(now)

    def _divide(self, rest_ns: int) -> None:
        """Divide the time of a window that is in no account among the queues that worked in it."""
        weights = sum(self._copies.values()) + sum(self._clients.values())
        if rest_ns > 0 and weights:
            rest_ns = round(rest_ns * self._weight)
            for account, weight in self._copies.items():
                account.cpu_ns += rest_ns * weight // weights
            for account, weight in self._clients.items():
                share_ns = rest_ns * weight // weights
                account.client_ns += share_ns
                self.clients_ns += share_ns
        self._copies.clear()
        self._clients.clear()

    def _end_round(self, now: int) -> None:
        """Have windows count for what they were of the thread's time in this round."""
        assert self._round_began is not None, "windows have been open"
        if self._inside_ns:
            self._weight = min((now - self._round_began) / self._inside_ns, WEIGHT_MAX)
        self._round_began, self._inside_ns, self._windows_left = now, 0, ROUND
