"""A queue that belongs to an exchange follows policies only as far as its copies go."""

from dataclasses import fields

import pytest

from node.amqp.field_table import long
from node.catalogue.deduplication import CACHE_SIZE, DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAYED_TYPE
from node.catalogue.exchange_queues import exchange_queue
from node.catalogue.policy import QueueSettings
from node.catalogue.recent_history import HISTORY_TYPE
from node.catalogue.records import QueueRecord
from node.catalogue.retained import RETAINED_TYPE
from node.queue.kinds import new_queue
from node.queue.queue import Queue
from node.queue.storage import MemoryStorage
from tests.kit.messages import FakeHost

EVERYTHING = QueueSettings(
    message_ttl=1,
    expires=1,
    max_length=1,
    max_length_bytes=1,
    overflow="reject-publish",
    dead_letter_exchange="d",
    dead_letter_routing_key="k",
    dead_letter_strategy="at-least-once",
    max_priority=9,
    single_active_consumer=True,
    delivery_limit=1,
    delayed_retry_type="all",
    delayed_retry_min=1,
    delayed_retry_max=2,
    delayed_retry_multiplier=2,
    hold_until_header="eta",
    queue_mode="lazy",
    queue_version=2,
    queue_master_locator="random",
    ha_mode="exactly",
    ha_params=2,
    ha_sync_mode="automatic",
    ha_sync_batch_size=7,
    ha_promote_on_shutdown="always",
    ha_promote_on_failure="always",
    ha_confirm="master",
    ha_slow_mirror="wait",
    group_header="g",
    is_deduplicating=True,
)
OF_COPIES = {"queue_version", "queue_master_locator"}


def of_exchange(kind: str) -> Queue:
    """Return the queue of an exchange of this type, for which policies set everything."""
    name = exchange_queue(kind, "x")
    assert name is not None
    record = QueueRecord("/", name, "uid", type="quorum", arguments={CACHE_SIZE: long(1)})
    return new_queue(record, EVERYTHING, FakeHost(), MemoryStorage(), None)


def test_everything_is_said() -> None:
    default = QueueSettings()
    assert [
        each.name
        for each in fields(QueueSettings)
        if getattr(EVERYTHING, each.name) == getattr(default, each.name)
    ] == []


@pytest.mark.parametrize("kind", [DELAYED_TYPE, DEDUPLICATION_TYPE, HISTORY_TYPE, RETAINED_TYPE])
@pytest.mark.parametrize("is_changed", [False, True])
def test_policies_choose_the_copies_of_an_exchange_s_queue_and_nothing_else(
    kind: str, is_changed: bool
) -> None:
    queue = of_exchange(kind)
    if is_changed:
        queue.apply_settings(EVERYTHING, 0.0)
    default = QueueSettings()
    for each in fields(QueueSettings):
        is_followed = each.name.startswith("ha_") or each.name in OF_COPIES
        if kind == HISTORY_TYPE and each.name == "max_length":
            continue  # the exchange's own
        wanted = getattr(EVERYTHING if is_followed else default, each.name)
        assert getattr(queue.settings, each.name) == wanted, each.name
