"""Small things that a node of a cluster needs while it waits: the clock, and lines for the log."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from cluster.membership import outputs
from cluster.metadata.replica import Replica
from node.clustering.host_process import HostProcess
from node.clustering.requests import Applicant
from node.log.log import escape

Logger: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"

WAITING_TOLD_S: Final = 10.0
"""How often the log says what a start waits for."""
RETRY_S: Final = 0.5


boottime: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds, on a clock that also counts while the machine sleeps (reliability §4.2)."""


class Starting(Protocol):
    """A node whose broker is to start."""

    @property
    def logger(self) -> Logger: ...
    @property
    def process(self) -> HostProcess: ...

    async def or_given_up(self, waiting: Any) -> Any:
        """What a wait of a start gives. Raises: GivenUp when the node is to stop meanwhile."""


class Waiting:
    """A start that waits: says so now and then.   retry_s: how long between two tries."""

    def __init__(self, node: Starting, retry_s: float = RETRY_S) -> None:
        self._node = node
        self._retry_s = retry_s
        self._told_at = boottime() - WAITING_TOLD_S + RETRY_S
        self._warnings: dict[str, float] = {}
        """When each was last told."""

    def warn(self, text: str) -> None:
        """Say why it goes on waiting, each reason at most every ten seconds."""
        now = boottime()
        self._warnings = {known: at for known, at in self._warnings.items() if now - at < WAITING_TOLD_S}
        if text not in self._warnings:
            self._warnings[text] = now
            self._node.logger.warning("%s", escape(text))

    async def tell(self, what: str, because: Sequence[str] = ()) -> None:
        """Wait a little; the log hears what for, and why, at most every ten seconds. Raises: GivenUp."""
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
    """What a node waits for, and why, as the end of a sentence about it."""
    return f"waits {what}" + (": " if because else "") + "; ".join(because)


def majority_reasons(name: str, replica: Replica, known: Mapping[str, Applicant]) -> list[str]:
    """Which voters are there and which are not, at which addresses, and what an operator can do; empty: all is well."""
    if replica.has_majority:
        return []
    here = sorted(replica.voters & (replica.links | {name}))
    missing = sorted(replica.voters - set(here))
    places = ", ".join(
        f"'{each}' at {known[each].address}" if each in known else f"'{each}'" for each in missing
    )
    there = ", ".join(f"'{each}'" for each in here)
    count = len(replica.voters) // 2 + 1 - len(here)
    return [
        *([f"{there} {'is' if len(here) == 1 else 'are'} there"] if here else []),
        f"no link to {places}",
        f"start {count} of them; those whose data are lost have to be forgotten: "
        "stop this node, then 'fluffle ctl forget_cluster_node --offline NAME'",
    ]


def tell(output: outputs.Output, logger: Logger) -> None:
    """Log what the membership has seen, where nothing is to be done about it."""
    match output:
        case outputs.PartitionSeen(name):
            logger.error("node '%s' is up, but there is no way to it from here: a partition", name)
        case outputs.PartitionHealed(name, is_down):
            logger.info("the partition from node '%s' is over%s", name, ": it is down" if is_down else "")
        case outputs.Parted(name, other):
            text = (
                "nodes '%s' and '%s' have not reached each other for long: '%s' counts as down until they do"
            )
            logger.error(text, name, other, name)
        case outputs.Hung(name):
            logger.warning("node '%s' is connected, but does not say anything: it hangs", name)
        case outputs.Recovered(name):
            logger.info("node '%s' hangs no more", name)
        case outputs.Refused(name, text):
            logger.error("node '%s': %s", name, text)
