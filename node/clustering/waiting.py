"""A node of a cluster that waits needs a clock, and lines for the log that say why it waits."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from cluster.membership import outputs
from cluster.metadata.raft_member import RaftMember
from node.clustering.host_process import HostProcess
from node.clustering.requests import Applicant
from node.log.log import escape

Logger: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"

WAITING_TOLD_S: Final = 10.0
"""The interval at which the log says why a start waits."""
RETRY_S: Final = 0.5


boottime: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Return the time in seconds, on a clock that also counts while the machine sleeps (reliability §4.2)."""


class Starting(Protocol):
    """A node whose broker is to start."""

    @property
    def logger(self) -> Logger: ...
    @property
    def process(self) -> HostProcess: ...

    async def or_given_up(self, waiting: Any) -> Any:
        """Return the result of an awaitable during a start. Raises: GivenUp if the node is told to stop meanwhile."""


class Waiting:
    """A start that waits, and logs why from time to time.   retry_s: the time between two tries."""

    def __init__(self, node: Starting, retry_s: float = RETRY_S) -> None:
        self._node = node
        self._retry_s = retry_s
        self._told_at = boottime() - WAITING_TOLD_S + RETRY_S
        self._warnings: dict[str, float] = {}
        """The time when each warning was last logged."""

    def warn(self, text: str) -> None:
        """Log a warning about a start that continues to wait, each text at most once in `WAITING_TOLD_S`."""
        now = boottime()
        self._warnings = {known: at for known, at in self._warnings.items() if now - at < WAITING_TOLD_S}
        if text not in self._warnings:
            self._warnings[text] = now
            self._node.logger.warning("%s", escape(text))

    async def tell(self, what: str, because: Sequence[str] = ()) -> None:
        """Wait for `retry_s`; log the reasons at most once in `WAITING_TOLD_S`. Raises: GivenUp."""
        now = boottime()
        self._node.process.wait_is(sentence(what, because))
        if now - self._told_at >= WAITING_TOLD_S:
            self._told_at = now
            self._node.logger.info("waiting %s", what)
            for reason in because:
                self._node.logger.info("%s", escape(reason))
        await self._node.or_given_up(asyncio.sleep(self._retry_s))


FOR_A_MAJORITY: Final = "for a majority of the cluster's disk nodes"
FOR_LINKS: Final = "for links to all nodes that are up"
FOR_AN_OUTCOME: Final = "for the cluster to agree"


def sentence(what: str, because: Sequence[str]) -> str:
    """Return what a node waits for, and why, as the end of a sentence about the node."""
    return f"waits {what}" + (": " if because else "") + "; ".join(because)


def majority_reasons(name: str, raft: RaftMember, known: Mapping[str, Applicant]) -> list[str]:
    """Return which voters are linked, the others' addresses, and what an operator can do; empty with a majority."""
    if raft.has_majority:
        return []
    here = sorted(raft.voters & (raft.links | {name}))
    missing = sorted(raft.voters - set(here))
    places = ", ".join(
        f"'{each}' at {known[each].address}" if each in known else f"'{each}'" for each in missing
    )
    there = ", ".join(f"'{each}'" for each in here)
    count = len(raft.voters) // 2 + 1 - len(here)
    return [
        *([f"{there} {'is' if len(here) == 1 else 'are'} there"] if here else []),
        f"no link to {places}",
        f"start {count} of them; those whose data are lost have to be forgotten: "
        "stop this node, then 'fluffle ctl forget_cluster_node --offline NAME'",
    ]


def tell(output: outputs.Output, logger: Logger) -> None:
    """Log an output of the membership on which the node takes no action."""
    match output:
        case outputs.PartitionSeen(name):
            logger.error("node '%s' is up, but this node cannot reach it (network partition)", name)
        case outputs.PartitionHealed(name, is_down):
            logger.info("the partition from node '%s' is over%s", name, ": it is down" if is_down else "")
        case outputs.Parted(name, other):
            text = (
                "nodes '%s' and '%s' have not reached each other for long: '%s' counts as down until they do"
            )
            logger.error(text, name, other, name)
        case outputs.Hung(name):
            logger.warning("node '%s' is connected, but sends nothing: it hangs", name)
        case outputs.Recovered(name):
            logger.info("node '%s' does not hang any more", name)
        case outputs.Refused(name, text):
            logger.error("node '%s': %s", name, text)
