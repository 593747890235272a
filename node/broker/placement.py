"""On which nodes a new queue is to live. Source: amqp-behaviour §9.2, §9.3."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from node.broker.commands import DeclareQueue
from node.broker.mirror_nodes import candidate_nodes, first_nodes, without
from node.broker.policy import QueueSettings, queue_settings

if TYPE_CHECKING:
    from node.broker.broker import Broker

MIN_MASTERS: Final = "min-masters"
RANDOM: Final = "random"

_ENTROPY_BYTES: Final = 4


def placed(broker: "Broker", command: DeclareQueue) -> DeclareQueue:
    """The declaration of a queue, made here, with its home and its mirrors.

    Its argument decides on the home, else its policy, else the configuration; an exclusive queue is always local.
    Nodes that are down, in maintenance mode or without queues are not chosen.
    """
    here = broker.settings.node_name
    members = {each.name: each for each in without(broker.catalogue.members.values(), broker.stuck_disks)}
    if command.exclusive_owner is not None or not members:
        return replace(command, home=here)
    policy = broker.catalogue.policy_of_new_queue(command.vhost, command.name, command.type)
    settings = queue_settings(command.arguments, policy)
    candidates = candidate_nodes(members.values(), command)
    willing = [node for node in candidates if not members[node].is_draining]
    home = _home(broker, settings, _eligible(settings, willing)) if willing else here
    home, mirrors = first_nodes(settings, command, home, candidates)
    return replace(command, home=home, mirrors=mirrors)


def _eligible(settings: QueueSettings, willing: Sequence[str]) -> Sequence[str]:
    """Those that a policy names, if any of them is there."""
    if settings.ha_mode != "nodes" or not isinstance(settings.ha_params, tuple):
        return willing
    return [node for node in willing if node in settings.ha_params] or willing


def _home(broker: "Broker", settings: QueueSettings, candidates: Sequence[str]) -> str:
    locator = settings.queue_master_locator or broker.settings.queue_master_locator
    if locator == MIN_MASTERS:
        counts = Counter(
            queue.home for live in broker.catalogue.vhosts() for queue in broker.catalogue.queues(live.name)
        )
        return min(candidates, key=lambda node: (counts[node], node))
    if locator == RANDOM:
        return candidates[int.from_bytes(broker.entropy(_ENTROPY_BYTES), "big") % len(candidates)]
    return broker.settings.node_name
