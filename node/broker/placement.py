"""Where a new queue is to live. Source: amqp-behaviour §9.2."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from node.amqp.field_table import Table
from node.broker.policy import queue_settings
from node.broker.records import QueueType

if TYPE_CHECKING:
    from node.broker.broker import Broker

MIN_MASTERS: Final = "min-masters"
RANDOM: Final = "random"

_ENTROPY_BYTES: Final = 4


def choose_home(
    broker: "Broker", vhost: str, name: str, arguments: Table, queue_type: QueueType, *, exclusive: bool
) -> str:
    """The node for a queue that is about to be declared here.

    Its argument decides, else its policy, else the configuration; an exclusive queue is always local. Nodes that
    are down, in maintenance mode or without queues are not chosen.
    """
    here = broker.settings.node_name
    candidates = sorted(
        member.name
        for member in broker.catalogue.members.values()
        if member.is_up and not member.is_draining and member.type != "witness"
    )
    if exclusive or not candidates:
        return here
    policy = broker.catalogue.policy_of_new_queue(vhost, name, queue_type)
    locator = queue_settings(arguments, policy).queue_master_locator or broker.settings.queue_master_locator
    if locator == MIN_MASTERS:
        counts = Counter(
            queue.home for live in broker.catalogue.vhosts() for queue in broker.catalogue.queues(live.name)
        )
        return min(candidates, key=lambda node: (counts[node], node))
    if locator == RANDOM:
        return candidates[int.from_bytes(broker.entropy(_ENTROPY_BYTES), "big") % len(candidates)]
    return here
