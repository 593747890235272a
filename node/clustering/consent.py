"""Nodes without a cluster let one of them at a time create one.

Lists of peer discovery may differ between nodes for a while, as each node adds itself: two nodes may both be the first
of theirs. A node therefore asks the others, and itself, before it creates a cluster. Each lets one node do so within
`CONSENT_S`; two nodes that both need more than half of `cluster_formation.target_cluster_size_hint` share one that is
asked by both.
"""

from collections.abc import Callable
from typing import Final

CONSENT_S: Final = 10.0
"""The time for which a node lets another one create a cluster, in seconds: asking takes two, and creating it a few
writes to the disk."""


class Consent:
    """The node that this one lets create a cluster.   clock: the time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._name = ""
        self._until = 0.0

    def give(self, name: str) -> bool:
        """Let a node create a cluster from now on for `CONSENT_S`. Returns: False if another one may do so now."""
        now = self._clock()
        if self._name != name and now < self._until:
            return False
        self._name, self._until = name, now + CONSENT_S
        return True

    def withdraw(self, name: str) -> None:
        """End the consent that this node gave, if it gave it to the named one."""
        if self._name == name:
            self._until = 0.0
