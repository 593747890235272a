"""Nodes without a cluster let one of them at a time create one.

Lists of peer discovery may differ between nodes for a while, as each node adds itself: two nodes may both be the first
of theirs. A node therefore asks the others, and itself, before it creates a cluster. Each lets one node do so within
`CONSENT_S`; two nodes that both need more than half of `cluster_formation.target_cluster_size_hint` share one that is
asked by both. A refusal names the node that may create the cluster instead, for the log of the one that waits.
"""

from collections.abc import Callable, Mapping
from typing import Final

from node.clustering.requests import NAME_CHARACTERS_MAX

CONSENT_S: Final = 10.0
"""The time for which a node lets another one create a cluster, in seconds: asking takes two, and creating it a few
writes to the disk."""
LATE: Final = "the other nodes took too long to answer"
"""A consent that comes when half of its time is over leaves too little of it for creating a cluster."""


class Consent:
    """The node that this one lets create a cluster.   clock: the time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._name = ""
        self._until = 0.0

    def give(self, name: str) -> bool:
        """Let a node create a cluster from now on for `CONSENT_S`. Returns: False if another one may do so now."""
        if self.holder not in ("", name):
            return False
        self._name, self._until = name, self._clock() + CONSENT_S
        return True

    @property
    def holder(self) -> str:
        """The name of the node that may create a cluster now; empty: none may."""
        return self._name if self._clock() < self._until else ""

    def withdraw(self, name: str) -> None:
        """End the consent that this node gave, if it gave it to the named one."""
        if self._name == name:
            self._until = 0.0


def answer(consent: Consent, name: str, cluster_id: str) -> dict[str, object]:
    """Return this node's answer to one that asks for its consent.   cluster_id: of this node's cluster; empty: none."""
    if cluster_id:
        return {"is_given": False, "is_member": True}
    return {"is_given": consent.give(name), "holder": consent.holder}


def refusal(name: str, told: object) -> str:
    """Return why a node does not consent, in words, from its answer; empty: it does.

    The answer of an older node has no reason. It comes from another node, so nothing in it is taken for granted.
    """
    if not isinstance(told, Mapping):
        return f"node '{name}' gave an invalid answer"
    if told.get("is_given") is True:
        return ""
    if told.get("is_member") is True:
        return f"node '{name}' belongs to a cluster"
    holder = told.get("holder")
    if not isinstance(holder, str) or not 0 < len(holder) <= NAME_CHARACTERS_MAX:
        return f"node '{name}' does not consent"
    return held(name, holder)


def held(name: str, holder: str) -> str:
    """Return that a node has given its consent to another one, in words."""
    return f"node '{name}' lets node '{holder}' create one"
