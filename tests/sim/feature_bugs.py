"""Known bugs of delays, retries, dead letters, deduplication, groups and hashes that the simulator must find.

Each is put back by itself, as `tests.sim.mirror_bugs` does it. Source: docs/delayed.md, docs/dead_letters.md,
docs/deduplication.md, docs/groups.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from cluster.mirror.replicator import Replicator
from node.broker.delayed_messages import DelayedMessages
from node.broker.full_routes import FullRoutes
from node.broker.safe_letters import SafeLetters
from node.plugins.exchanges import consistent_hash
from node.queue import delayed_queue
from node.queue.deduplicating_queue import DeduplicatingQueue
from node.queue.delayed_queue import DelayedQueue
from node.queue.filter_queue import FilterQueue
from node.queue.groups import Groups
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.retries import Retries
from node.queue.run import NEVER, Run
from tests.sim.audit import put_back
from tests.sim.feature_ledger import Duplicate, Early, Forgotten, Lost, Misrouted, Shared, Twice
from tests.sim.mirror_world import Violation


def _forgotten_at_promotion(patch: pytest.MonkeyPatch) -> None:
    """The next master of a delayed exchange's queue knows nothing of what waits."""
    whole = DelayedQueue.begin_with

    def begin_with(self: DelayedQueue, copy: Any, on_done: Callable[[], None]) -> None:
        def done() -> None:
            for run in list(self.backlog.levels[0].in_memory(0)):
                self.backlog.take(len(run))
            on_done()

        whole(self, copy, done)

    patch.setattr(DelayedQueue, "begin_with", begin_with)


def _fired_early(patch: pytest.MonkeyPatch) -> None:
    """A delay is counted from the beginning of a tenth of a second."""
    whole = delayed_queue.due_at
    patch.setattr(delayed_queue, "due_at", lambda now, delay: whole(now // 0.1 * 0.1, delay))


def _fired_twice(patch: pytest.MonkeyPatch) -> None:
    """Mirrors and disk do not hear that a delayed message has gone, so the next master sends it again."""
    whole = DelayedMessages._arrived

    def arrived(self: DelayedMessages, pending: PendingPublish) -> None:
        queue = self._groups[pending].queue
        replicator, queue.replicator = queue.replicator, None
        try:
            whole(self, pending)
        finally:
            queue.replicator = replicator

    patch.setattr(DelayedMessages, "_arrived", arrived)


def _forgotten_before_they_arrive(patch: pytest.MonkeyPatch) -> None:
    """A delayed message leaves its queue when it is published, not when its targets have it."""
    whole = DelayedMessages._publish_group

    def publish_group(self: DelayedMessages, group: Any, targets: Any) -> None:
        for run in group.runs:
            group.queue.forget(run)
        whole(self, group, targets)

    def arrived(self: DelayedMessages, pending: PendingPublish) -> None:
        self._settled(len(self._groups.pop(pending)))

    patch.setattr(DelayedMessages, "_publish_group", publish_group)
    patch.setattr(DelayedMessages, "_arrived", arrived)


def _absent_is_nowhere(patch: pytest.MonkeyPatch) -> None:
    """A queue whose node is down is no target of what nobody publishes."""
    patch.setattr(FullRoutes, "lack", lambda self, *route: False)


def _counts_lost(patch: pytest.MonkeyPatch) -> None:
    """Mirrors do not hear how often a message came back."""
    patch.setattr(Replicator, "returned", lambda self, seqs, deliveries: None)


def _ready_at_promotion(patch: pytest.MonkeyPatch) -> None:
    """A message that waits to be retried is ready at the next master."""

    def take_waiting(self: Queue, run: Run) -> None:
        run.envelope, run.expiry = run.envelope.counterpart(), NEVER
        self.backlog.add(run)

    patch.setattr(Queue, "take_waiting", take_waiting)


def _retries_not_handed_on(patch: pytest.MonkeyPatch) -> None:
    """A mirror that is synchronised meanwhile does not get what waits to be retried."""
    patch.setattr(Retries, "runs", lambda self: [])


def _refused_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A dead letter has arrived where its target has refused it."""
    whole = SafeLetters._told

    def told(self: SafeLetters, letter: Any, uid: str, pending: PendingPublish) -> None:
        pending.refused = set()
        whole(self, letter, uid, pending)

    patch.setattr(SafeLetters, "_told", told)


def _letter_settled_before_it_arrives(patch: pytest.MonkeyPatch) -> None:
    """A dead letter is acknowledged when it is published, before its target has confirmed it."""
    publish_to_all, answered = SafeLetters._publish_to_all, SafeLetters._answered

    def publish(self: SafeLetters, letter: Any) -> None:
        if not letter.is_again:
            letter.queue.forget(letter.run)
        publish_to_all(self, letter)

    def answer(self: SafeLetters, letter: Any) -> None:
        with pytest.MonkeyPatch.context() as own:
            own.setattr(letter.queue, "forget", lambda run: None)
            answered(self, letter)

    patch.setattr(SafeLetters, "_publish_to_all", publish)
    patch.setattr(SafeLetters, "_answered", answer)


def _window_not_mirrored(patch: pytest.MonkeyPatch) -> None:
    """The next master of a queue that deduplicates begins without ids."""
    patch.setattr(DeduplicatingQueue, "begin_with", Queue.begin_with)
    patch.setattr(DeduplicatingQueue, "take_waiting", Queue.take_waiting)


def _id_left_behind(patch: pytest.MonkeyPatch) -> None:
    """A message that changes its number loses its id."""
    patch.setattr(DeduplicatingQueue, "renumbered", Queue.renumbered)


def _cache_not_mirrored(patch: pytest.MonkeyPatch) -> None:
    """The next master of an exchange that deduplicates begins without ids."""
    patch.setattr(FilterQueue, "_learn", lambda self, run: None)


def _groups_not_held(patch: pytest.MonkeyPatch) -> None:
    """A group goes to any consumer."""
    patch.setattr(Groups, "_hold", lambda self, group, consumer, number: None)


def _group_free_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A group is free when one of its messages is settled, though its consumer has more of it."""
    whole = Groups.settled

    def settled(self: Groups[Any], seqs: range) -> bool:
        for number in seqs:
            group = self._unsettled.get(number)
            if group is not None:
                group.unsettled = 1
        return whole(self, seqs)

    patch.setattr(Groups, "settled", settled)


def _hash_of_the_node(patch: pytest.MonkeyPatch) -> None:
    """A key leads to another queue at each node."""
    numbers: dict[int, int] = {}

    def find(self: consistent_hash.ConsistentHashIndex, value: Any) -> Any:
        return self._destinations[numbers.setdefault(id(self), len(numbers)) % len(self._destinations)]

    patch.setattr(consistent_hash.ConsistentHashIndex, "_find", find)


class Found(NamedTuple):
    """A run that finds a bug.   errors: what it may be found by."""

    seed: int
    faults: tuple[str, ...]
    kinds: tuple[str, ...]
    errors: tuple[type[Violation], ...]


OF_STORIES: Final[dict[str, Any]] = {
    "absent is nowhere": _absent_is_nowhere,
    "retries not handed on": _retries_not_handed_on,
}
"""The bugs for which too many seeds have to be tried: queues are seldom without mirrors, and few wait for long."""

BUGS: Final[dict[str, Any]] = {
    **OF_STORIES,
    "delayed forgotten at promotion": _forgotten_at_promotion,
    "fired early": _fired_early,
    "fired twice": _fired_twice,
    "delayed forgotten before they arrive": _forgotten_before_they_arrive,
    "counts lost": _counts_lost,
    "retries ready at promotion": _ready_at_promotion,
    "refused is taken": _refused_is_taken,
    "letter settled before it arrives": _letter_settled_before_it_arrives,
    "window not mirrored": _window_not_mirrored,
    "id left behind": _id_left_behind,
    "cache not mirrored": _cache_not_mirrored,
    "groups not held": _groups_not_held,
    "group free too soon": _group_free_too_soon,
    "hash of the node": _hash_of_the_node,
}

AUDIT: Final[dict[str, Found]] = {
    "delayed forgotten at promotion": Found(1, ("crash",), ("late",), (Violation,)),
    "fired early": Found(0, ("hang_up",), ("late",), (Early,)),
    "fired twice": Found(0, ("crash",), ("late",), (Twice, Violation)),
    "delayed forgotten before they arrive": Found(19, ("ambush",), ("late",), (Lost, Violation)),
    "counts lost": Found(2, ("transfer",), ("retry",), (Forgotten, Early)),
    "retries ready at promotion": Found(59, ("crash", "transfer"), ("retry",), (Early, Violation)),
    "refused is taken": Found(0, ("hang_up",), ("safe",), (Lost,)),
    "letter settled before it arrives": Found(0, ("crash", "exile"), ("safe",), (Lost, Violation)),
    "window not mirrored": Found(2, ("transfer",), ("once",), (Duplicate,)),
    "id left behind": Found(0, ("hang_up",), ("once",), (Duplicate,)),
    "cache not mirrored": Found(1, ("transfer",), ("passed",), (Duplicate,)),
    "groups not held": Found(1, ("hang_up",), ("grouped",), (Shared,)),
    "group free too soon": Found(1, ("hang_up",), ("grouped",), (Shared,)),
    "hash of the node": Found(0, ("hang_up",), ("hash",), (Misrouted,)),
}
"""This run finds the bug; four seconds long. It is well without the bug."""

bug = partial(put_back, BUGS)
"""`with bug(name):` has it while the context lasts."""
