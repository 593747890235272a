"""The checks of messages that come back: what comes too early, and what only looks so."""

from typing import Final

import pytest

from node.amqp.field_table import Table, long
from tests.sim.feature_ledger import Early, FeatureLedger, Story, retry_s
from tests.sim.mirror_world import Timeline

QUEUE: Final = "retry"
ALICE: Final = ("alice", 1)
BOB: Final = ("bob", 1)
OFTEN: Final = 3
"""Returns of the message before a story begins: it waits 0.4 s for each."""


class Told:
    """A ledger in which one message has come back `OFTEN` times, is due again, and is with a client at 10 s."""

    def __init__(self) -> None:
        self.ledger = FeatureLedger(Timeline(1, ("n1",)))
        self.ledger.after_s = 1.0
        self.story: Story = self.ledger.tell(QUEUE, "publisher", 0, size=40)
        self.came(0.1, ALICE, 0)
        self.story.least = self.story.count = OFTEN - 1
        self.came_back(10.0 - retry_s(OFTEN))
        self.came(10.0, ALICE, OFTEN)

    def at(self, when: float) -> None:
        """Let time pass until then."""
        self.ledger.world.now = when

    def came(self, when: float, session: object, count: int) -> None:
        """The message comes to a client. Raises: Violation."""
        self.at(when)
        self.ledger.latest = Table({"x-delivery-count": long(count)}) if count else Table()
        self.ledger.deliver(QUEUE, self.story.body, session, redelivered=count > 0)

    def came_back(self, when: float) -> None:
        """The client that has it gives it back."""
        self.at(when)
        self.ledger.returned(self.story)

    def master_changes(self, when: float) -> None:
        """The queue gets another master."""
        self.at(when)
        self.ledger.change(QUEUE)


def test_what_comes_back_comes_at_its_time() -> None:
    told = Told()
    told.came_back(12.0)
    told.came(12.0 + retry_s(OFTEN + 1), BOB, OFTEN + 1)


@pytest.mark.parametrize("changes_at", [None, 13.3])
def test_what_comes_back_too_soon_is_found(changes_at: float | None) -> None:
    """A message that waits when the master changes waits on, as all copies know until when."""
    told = Told()
    told.came_back(12.0)
    if changes_at is not None:
        told.master_changes(changes_at)
    with pytest.raises(Early):
        told.came(13.4, BOB, OFTEN + 1)


def test_what_a_client_has_goes_to_another_one_at_once_if_the_master_changes() -> None:
    """The client gave nothing back, so there is nothing to wait for."""
    told = Told()
    told.master_changes(10.01)
    told.came(10.02, BOB, OFTEN)


def test_a_second_copy_has_its_own_time() -> None:
    """A second copy is there if a master changed when the message became ready: one waits while the other comes.

    See docs/dead_letters.md, "Retries with back-off": a crash in between may leave it twice.
    """
    told = Told()
    told.master_changes(10.01)
    told.came(10.02, BOB, OFTEN)
    told.came_back(11.5)
    told.came(11.5 + retry_s(OFTEN + 1), ALICE, OFTEN + 1)
    told.came_back(14.0)
    told.came(14.1, BOB, OFTEN + 1)
