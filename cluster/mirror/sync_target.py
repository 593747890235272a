"""A mirror's side of a synchronisation: requests the messages that its copy lacks from the master, and stores them.

    missing ── the next ranges ─► Pull          Chunk ─► Copy.install ─► the same Pull again: taken ─┐
      └── all asked for, something is missing: once more, after a while ◄──────── is_end ◄────────┘
            └── the master gives nothing of it: what the node has of a copy that was not taken (`KeptMessages`)

The mirror pulls, so it stops by asking for no more. Messages that are asked for and not given were not found just
then, or are gone, of which the ring tells; messages that the ring brings meanwhile are not missing. Whatever happens,
the copy is what it was, or more.

Source: reliability §4.5; amqp-behaviour §9.3.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from cluster.mirror.side import RANGES_MAX, Chunk, Pull, encode_side
from cluster.mirror.sync_source import DEFAULT_BATCH, first_of
from node.queue.mirroring import SyncProgress
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue

RETRY_S: Final = 0.1
"""The delay before messages that the master did not find are asked for again; doubled each time that nothing came."""

RETRY_MAX_S: Final = 5.0

REFUSED_S: Final = 1.0
"""The delay after a refusal: the mirror will have heard of another master, and have got its inventory."""

STUCK_S: Final = 60.0
"""After so long without a chunk that was asked for, it is asked for anew."""

CONGESTED_S: Final = 0.05
"""The delay before the mirror checks again whether this node has room."""

_NEVER: Final = float("inf")


class Receiver(Protocol):
    """The copy that is completed.   missing: numbers that it lacks; None: it is not known, or all is there."""

    @property
    def missing(self) -> NumberSet | None: ...

    @property
    def epoch_s(self) -> float: ...

    def install(self, entries: Iterable[Enqueue]) -> None:
        """Store messages that are missing."""


class Spare(Protocol):
    """A source of messages that the master may not be able to give."""

    def give(self, wanted: Sequence[range], epoch_s: float, done: Callable[[list[Enqueue]], None]) -> None:
        """Find some of the wanted messages, the first ones; `done` comes now or later.   epoch_s: see
        `Storage.epoch_s`.
        """


class SyncTarget:
    """Completes the copy of one mirror.

    has_inventory: whether the copy's missing messages are known.   send: takes a side message for the master.
    on_done: called when nothing is missing any more, by whatever way.
    is_congested: whether this node should take nothing more for now: its disk doesn't keep up, memory is short.
    spare: asked for messages that the master does not give.
    """

    def __init__(
        self,
        copy: Receiver,
        send: Callable[[bytes], None],
        *,
        has_inventory: bool,
        on_done: Callable[[], None] = lambda: None,
        is_congested: Callable[[], bool] = lambda: False,
        spare: Spare | None = None,
    ) -> None:
        self._copy = copy
        self._send = send
        self._has_inventory = has_inventory
        self._on_done = on_done
        self._is_congested = is_congested
        self._spare = spare
        self._spare_next = 0  # the number from which on the spare is asked next
        self._is_running = False
        self._request = 0
        self._is_asking = False  # whether more chunks of the request are to come
        self._has_asked = False  # whether the master knows of a request
        self._taken = 0
        self._is_held = False  # whether the next message to the master waits for room here
        self._next = 0  # the number from which on is asked next
        self._installed = 0
        self._installed_before = 0  # this time round
        self._delay_s = RETRY_S
        self._now = 0.0
        self.due_at = _NEVER
        """The latest time for the next call of `tick`."""

    @property
    def progress(self) -> SyncProgress:
        """The messages that came by this synchronisation, or the last one, and their total."""
        return SyncProgress(self._installed, self._installed + self._missing, self._is_running)

    @property
    def _missing(self) -> int:
        missing = self._copy.missing
        return 0 if missing is None else len(missing)

    def start(self) -> bool:
        """Begin, or continue. True if there is something to do that is not under way already.

        Without an inventory, the copy begins once it has one.
        """
        if self._is_running or (self._has_inventory and not self._missing):
            return False
        self._is_running = True
        self._installed = 0
        self._begin()
        return True

    def cancel(self) -> bool:
        """Ask for no more; False: it was not running (`not_syncing`)."""
        if not self._is_running:
            return False
        self._stop()
        return True

    def inventory_known(self) -> None:
        """Begin anew with a known list of what the copy lacks: by a first inventory, or that of another master."""
        self._has_inventory = True
        if self._is_running:
            self._begin()

    def chunk(self, message: Chunk) -> None:
        """Take a chunk of the master."""
        if not self._is_asking or message.request != self._request:
            return  # of a request that counts no more
        if message.is_refused:
            self._is_asking = self._has_asked = False
            self._wait(REFUSED_S)
            return
        self._install(message.entries)
        self._taken += 1
        self._is_asking = not message.is_end
        self._go_on()

    def tick(self, now: float) -> None:
        """Do what is due after some time, or after messages were removed from the copy."""
        self._now = now
        if not self._is_running or not self._has_inventory:
            return
        if not self._missing:
            self._finish()
        elif now >= self.due_at:
            if self._is_asking and not self._is_held:
                self._next = 0
                self._is_asking = False
            self._go_on()

    # --- asking ---

    def _begin(self) -> None:
        self._next = 0
        self._is_asking = False
        self._delay_s = RETRY_S
        self._installed_before = self._installed
        if self._has_inventory:
            self._go_on()

    def _go_on(self) -> None:
        """Send the next message of the present request, or the next request."""
        if not self._missing:
            self._finish()
            return
        self._is_held = self._is_congested()
        if self._is_held:
            self._wait(CONGESTED_S)
        elif self._is_asking:
            self._say(Pull(self._request, (), self._taken, self._installed, self._missing))
            self._wait(STUCK_S)
        else:
            self._ask()

    def _ask(self) -> None:
        """Request the next messages; after the last ones, wait a little."""
        missing = self._copy.missing
        assert missing is not None, "something is missing"
        ranges = missing.ranges_from(self._next, RANGES_MAX)
        if not ranges:
            if self._installed > self._installed_before:
                self._delay_s = RETRY_S
            elif self._spare is not None:
                self._ask_spare(self._spare)
            self._wait(self._delay_s)
            self._delay_s = min(2 * self._delay_s, RETRY_MAX_S)
            self._installed_before = self._installed
            self._next = 0
            return
        self._request += 1
        self._taken = 0
        self._is_asking = self._has_asked = True
        self._next = ranges[-1].stop
        self._say(Pull(self._request, tuple(ranges), 0, self._installed, self._missing))
        self._wait(STUCK_S)

    def _install(self, entries: Iterable[Enqueue]) -> None:
        missing = self._missing
        self._copy.install(entries)
        self._installed += missing - self._missing

    def _ask_spare(self, spare: Spare) -> None:
        """Ask the spare for the next messages, since the master has given nothing more; after the last begin anew."""
        missing = self._copy.missing
        assert missing is not None, "something is missing"
        wanted = first_of(missing.ranges_from(self._spare_next, RANGES_MAX), DEFAULT_BATCH)
        self._spare_next = wanted[-1].stop if wanted else 0

        def found(entries: list[Enqueue]) -> None:
            if not self._is_running or not entries:
                return
            self._install(entries)
            self._spare_next = 0
            self._delay_s = RETRY_S
            self.due_at = self._now  # for more of it, or the end

        if wanted:
            spare.give(wanted, self._copy.epoch_s, found)

    def _say(self, pull: Pull) -> None:
        self._send(encode_side(pull))

    def _wait(self, seconds: float) -> None:
        self.due_at = self._now + seconds

    def _stop(self) -> None:
        self._is_running = self._is_asking = self._is_held = False
        self.due_at = _NEVER
        if self._has_asked:
            self._has_asked = False
            self._request += 1
            self._say(Pull(self._request, (), 0, self._installed, self._missing))

    def _finish(self) -> None:
        self._stop()
        self._on_done()
