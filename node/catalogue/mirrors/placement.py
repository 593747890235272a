"""The choice of the nodes on which a new queue is to live. Source: amqp-behaviour §9.2, §9.3."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import DeclareQueue
from node.catalogue.mirrors.mirror_nodes import candidate_nodes, first_nodes, without
from node.catalogue.policy import QueueSettings, queue_settings

MIN_MASTERS: Final = "min-masters"
RANDOM: Final = "random"

_ENTROPY_BYTES: Final = 4


@dataclass(frozen=True)
class Placement:
    """The rules and data by which the nodes for new queues are chosen.

    here: this node.   locator: client-local, min-masters or random, where neither arguments nor a policy say.
    stuck_disks: nodes whose message disks make no progress.   entropy: gives that many random bytes.
    """

    catalogue: Catalogue
    here: str
    locator: str
    stuck_disks: Collection[str]
    entropy: Callable[[int], bytes]

    def placed(self, command: DeclareQueue) -> DeclareQueue:
        """Return the declaration of a queue that a client of this node declares, with its home and its mirrors.

        The queue's argument decides on the home, else its policy, else the configuration; an exclusive queue is always
        local. Nodes that are down, in maintenance mode or without queues are not chosen.
        """
        members = {each.name: each for each in without(self.catalogue.members.values(), self.stuck_disks)}
        if command.exclusive_owner is not None or not members:
            return replace(command, home=self.here)
        policy = self.catalogue.policy_of_new_queue(command.vhost, command.name, command.type)
        settings = queue_settings(command.arguments, policy)
        candidates = candidate_nodes(members.values(), command)
        willing = [node for node in candidates if not members[node].is_draining]
        home = self._home(settings, _eligible(settings, willing)) if willing else self.here
        home, mirrors = first_nodes(settings, command, home, candidates)
        return replace(command, home=home, mirrors=mirrors)

    def _home(self, settings: QueueSettings, candidates: Sequence[str]) -> str:
        locator = settings.queue_master_locator or self.locator
        if locator == MIN_MASTERS:
            vhosts = self.catalogue.vhosts()
            counts = Counter(queue.home for vhost in vhosts for queue in self.catalogue.queues(vhost.name))
            return min(candidates, key=lambda node: (counts[node], node))
        if locator == RANDOM:
            return candidates[int.from_bytes(self.entropy(_ENTROPY_BYTES), "big") % len(candidates)]
        return self.here


def _eligible(settings: QueueSettings, willing: Sequence[str]) -> Sequence[str]:
    """Return the nodes that a policy names, if any of them is willing; else all willing nodes."""
    if settings.ha_mode != "nodes" or not isinstance(settings.ha_params, tuple):
        return willing
    return [node for node in willing if node in settings.ha_params] or willing
