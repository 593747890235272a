"""Known bugs that the simulation of everything must find, put back one at a time: else it is no evidence.

They are those of the other simulators, and some that only this one can have. Source: reliability §5.2 (mutation audit).
"""

from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import pytest

from cluster.mirror.copy import Copy
from cluster.mirror.mirrors import Mirrors
from cluster.mirror.policy_reconciler import PolicyReconciler
from cluster.mirror.queue_recovery import QueueRecovery
from cluster.remote.proxy import Proxy
from node.catalogue.mirrors import promotion
from node.catalogue.mirrors.views import View
from node.client.channel import Channel
from node.clustering import peer_state
from node.queue.consumer import UNLIMITED
from node.queue.operations import Enqueue
from node.queue.paged_backlog import PagedBacklog
from node.store import message_store
from node.store.disk import Append
from node.store.message_store import MessageStore
from tests.sim import mirror_bugs, raft_bugs
from tests.sim.audit import put_back
from tests.sim.world_histories import HISTORIES
from tests.sim.world_node import WorldNode


def _loss_is_not_told(patch: pytest.MonkeyPatch) -> None:
    """A node offers a copy that has lost something as if it were whole."""
    whole = QueueRecovery.recovered

    def recovered(self: QueueRecovery, *what: Any, is_clean: bool = True) -> None:
        whole(self, *what, is_clean=True)

    patch.setattr(QueueRecovery, "recovered", recovered)


def _failed_disk_is_an_alarm(patch: pytest.MonkeyPatch) -> None:
    """A node whose disk has failed goes on, and keeps what it is master of."""
    patch.setattr(WorldNode, "_store_broken", lambda self, error: self.broker.alarms.set("disk"))


def _space_of_a_stuck_disk_counts(patch: pytest.MonkeyPatch) -> None:
    """A node whose disk hangs blocks all publishers for want of space, as it was told before the disk hung."""
    patch.setattr(
        peer_state,
        "_resources",
        lambda status: [each for each in (status or {}).get("alarms", []) if each == "disk"],
    )


def _prefetch_ignored(patch: pytest.MonkeyPatch) -> None:
    """A consumer is given whatever there is."""
    patch.setattr(Channel, "credit", lambda self, consumer: UNLIMITED)


def _damaged_files_grow(patch: pytest.MonkeyPatch) -> None:
    """Messages that come after damage was found are written to the same file."""
    patch.setattr(MessageStore, "leave", lambda self, path: None)


def _files_that_are_gone_grow(patch: pytest.MonkeyPatch) -> None:
    """A write to a file that was removed makes another one, without a beginning."""
    patch.setattr(message_store, "appends", lambda gathered, header: [Append(*each) for each in gathered])


def _pages_while_it_fills(patch: pytest.MonkeyPatch) -> None:
    """A copy that becomes a queue pages what it has in memory into the segments that it counts."""
    never = property(lambda self: False, lambda self, value: None)
    patch.setattr(Copy, "_is_filling", never, raising=False)


def _not_counted_anew(patch: pytest.MonkeyPatch) -> None:
    """Pages that had messages which are lost count them on."""
    patch.setattr(PagedBacklog, "_recount", lambda self, lost, first: None)


def _judgement_ignored(patch: pytest.MonkeyPatch) -> None:
    """The longest copy that was offered is taken, whatever it has lost."""

    def best(view: View) -> tuple[str, int, int]:
        return max(view.offers, key=lambda offer: (offer[2], -view.recoverable.index(offer[0])))

    patch.setattr(promotion, "_best", best)


def _others_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A message that the copy that was taken cannot read is dropped, whatever other copies have."""
    patch.setattr(PolicyReconciler, "awaits_kept", lambda self, uid, now: False)


def _own_death_drops(patch: pytest.MonkeyPatch) -> None:
    """A node that reads of its death in the log drops its copy, though the queue may have to come back from it."""
    patch.setattr(View, "wants", lambda self, own: self.has(own.id))


def _sent_again_to_one_copy_is_new(patch: pytest.MonkeyPatch) -> None:
    """A queue that is not mirrored any more takes what was sent to a master before for something new."""
    whole = Proxy._take

    def take(self: Proxy, entry: Enqueue, *, is_again: bool) -> Collection[int]:
        return whole(self, entry, is_again=is_again and self.queue.replicator is not None)

    patch.setattr(Proxy, "_take", take)


def _copy_goes_with_its_view(patch: pytest.MonkeyPatch) -> None:
    """A master takes its queue for one that is not mirrored any more before it has made one of its copy."""
    patch.setattr(Mirrors, "_is_acting", lambda self, uid: True)


BUGS: dict[str, Any] = {
    **mirror_bugs.BUGS,
    **raft_bugs.BUGS,
    "loss is not told": _loss_is_not_told,
    "failed disk is an alarm": _failed_disk_is_an_alarm,
    "space of a stuck disk counts": _space_of_a_stuck_disk_counts,
    "prefetch ignored": _prefetch_ignored,
    "damaged files grow": _damaged_files_grow,
    "files that are gone grow": _files_that_are_gone_grow,
    "pages while it fills": _pages_while_it_fills,
    "not counted anew": _not_counted_anew,
    "judgement ignored": _judgement_ignored,
    "others are not asked": _others_are_not_asked,
    "own death drops": _own_death_drops,
    "copy goes with its view": _copy_goes_with_its_view,
    "sent again to one copy is new": _sent_again_to_one_copy_is_new,
}


class Found(NamedTuple):
    """Names the run that finds a bug, and is well without it."""

    mode: str
    seed: int
    faults: tuple[str, ...] = ()


AUDIT: dict[str, Found] = {
    "confirm at once": Found("safety", 6, ("cut", "transfer", "hang", "crash")),
    "confirm without disk": Found("safety", 3, ("total", "hang", "transfer")),
    "no deduplication": Found("safety", 5, ("total", "hang", "transfer")),
    "acks not replicated": Found("safety", 1, ("transfer",)),
    "synced before disk": Found("safety", 5, ("cut", "transfer", "hang", "crash")),
    "early packets dropped": Found("safety", 15, ("cut", "transfer", "hang", "crash")),
    "own publishes lost": Found("safety", 7, ("cut", "transfer", "hang", "crash")),
    "failed disk is an alarm": Found("safety", 6, ("disk_error", "hang", "transfer")),
    "no resend": Found("safety", 52, ("total", "hang", "transfer")),
    "not redelivered": Found("safety", 34, ("crash", "transfer")),
    "inventory skipped": Found("safety", 5, ("cut", "transfer", "hang", "crash")),
    "senders forgotten": Found("safety", 5, ("total", "hang", "transfer")),
    "transient not replicated": Found("safety", 0, ("transfer", "crash")),
    "own disk ignored": Found("safety", 3, ("total", "hang", "transfer")),
    "disks unwatched": Found("liveness", 20, ("hang",)),
    "unsafe count": Found("liveness", 27, ("disk_error", "hang", "transfer")),
    "unreadable dropped": Found("safety", 5, ("page", "rot")),
    "own writes forgotten": Found("safety", 22, ("slow_disk", "hang", "transfer")),
    "sent again is new": Found("safety", 8, ("ambush", "slow_link")),
    "prefetch not counted anew": Found("safety", 2, ("transfer",)),
    "consumer not reattached": Found("safety", 1, ("transfer",)),
    "remote consumer not reattached": Found("safety", 1, ("transfer",)),
    "unacked left behind": Found("safety", 10, ("transfer",)),
    # A consumer is cancelled and comes back to the same channel while a delivery is open: each limit is its own.
    "prefetch ignored": Found("safety", 9),
}


NOT_FOUND: dict[str, str] = {
    "waits are joined": "a number of one member has to follow another's id; tests.sim.test_mirrors has its story",
    "losses untold": "tests.cluster.mirror.test_damage has its story",
    **dict.fromkeys(mirror_bugs.OF_STORIES, "tests.sim.test_mirrors has its story"),
    **{
        name: "tests.sim.test_raft finds it"
        for name in raft_bugs.BUGS
        if name not in AUDIT and name not in HISTORIES
    },
}
"""This simulation does not find these in so many seeds as a test may take, but something else does.

Those of the metadata need crashes within a few milliseconds of a change of metadata, of which there are few here: most
of what is done here is done with messages.
"""


bug = partial(put_back, BUGS)
"""`with bug(name):` has it while the context lasts."""
