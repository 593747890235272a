"""Faults of a live cluster, each with the finding that has to tell of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.spark_ops.live.site import Site

SKEW_S: Final = 3600.0
"""By so much the clock of n3 is ahead: the window of a judgement must not end in its future."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.   finding: the id of its finding.   names: what the finding's text has to name.

    heal: undoes the fault; None: it is the last one.
    """

    name: str
    finding: str
    severity: str
    names: tuple[str, ...]
    inject: Callable[[Site], object]
    heal: Callable[[Site], object] | None


@dataclass(frozen=True, slots=True)
class Telling:
    """The finding that told of a fault.

    seconds: from the injection until the alert.   others: ids of further findings that were raised.
    """

    fault: Fault
    finding: dict[str, Any]
    seconds: float
    others: tuple[str, ...]


def _memory_alarm(site: Site) -> None:
    site.node(1).must("set_vm_memory_high_watermark", "absolute", "1000000")


def _no_memory_alarm(site: Site) -> None:
    site.node(1).must("set_vm_memory_high_watermark", "0.4")


def _disk_alarm(site: Site) -> None:
    site.node(2).must("set_disk_free_limit", str(10**15))


def _no_disk_alarm(site: Site) -> None:
    site.node(2).must("set_disk_free_limit", "50000000")


def _cut_off(site: Site) -> None:
    one, two, three = (node.name for node in site.cluster.nodes)
    site.cluster.cut((one, three), (two, three))


def _mend(site: Site) -> None:
    site.cluster.mend()
    site.cluster.await_members()


def _kill_all(site: Site) -> None:
    for node in site.cluster.nodes:
        node.kill()


N1, N2, N3 = (f"n{number}@localhost" for number in (1, 2, 3))

MEMORY_ALARM: Final = Fault(
    "memory alarm of n1", f"alarm-active/{N1}", "crit", (N1, "memory"), _memory_alarm, _no_memory_alarm
)
DISK_ALARM: Final = Fault(
    "disk alarm of n2", f"alarm-active/{N2}", "crit", (N2, "disk"), _disk_alarm, _no_disk_alarm
)
SLOW_DISK: Final = Fault(
    "each sync of n2 takes 0.4 s longer",
    f"slow-syncs/{N2}",
    "warn",
    (N2, "sync"),
    lambda site: site.node(2).disk.slow(),
    lambda site: site.node(2).disk.mend(),
)
SKEWED_CLOCK: Final = Fault(
    "the clock of n3 is an hour ahead",
    f"clock-skew/{N3}",
    "warn",
    (N3, "ahead of"),
    lambda site: site.node(3).clock.shift(SKEW_S),
    lambda site: site.node(3).clock.shift(0.0),
)
PARTITION: Final = Fault(
    "n3 is cut off from n1 and n2", "partition", "crit", (f"{N3} has paused",), _cut_off, _mend
)
NODE_KILLED: Final = Fault(
    "n2 is killed (-9)",
    f"node-down/{N2}",
    "warn",
    (f"{N2} is down",),
    lambda site: site.node(2).kill(),
    lambda site: site.cluster.heal(),
)
ALL_KILLED: Final = Fault(
    "all nodes are killed (-9)", "cluster-down", "crit", ("none of 3 nodes",), _kill_all, None
)

ALL: Final = (MEMORY_ALARM, DISK_ALARM, PARTITION, SLOW_DISK, NODE_KILLED, SKEWED_CLOCK, ALL_KILLED)
AT_ONCE: Final = (MEMORY_ALARM, SLOW_DISK, SKEWED_CLOCK)
"""Faults of three nodes. The alarm keeps publishers from using the slow disk until it is healed."""


def told_of(site: Site, faults: Sequence[Fault]) -> list[Telling]:
    """Inject faults at the same time, wait until each is told, and heal it then.

    Raises: AssertionError if one is not told, or with another severity, or without the right names.
    """
    for fault in faults:
        site.await_cleared(fault.finding)
    before = set(site.told.standing())
    begun: dict[str, float] = {}
    for fault in faults:
        fault.inject(site)
        begun[fault.finding] = time.monotonic()
    tellings: dict[str, Telling] = {}

    def is_told() -> bool:
        standing = site.told.standing()
        for fault in faults:
            if fault.finding in standing and fault.finding not in tellings:
                others = tuple(sorted(standing.keys() - before - begun.keys()))
                seconds = time.monotonic() - begun[fault.finding]
                tellings[fault.finding] = Telling(fault, standing[fault.finding], seconds, others)
                if fault.heal is not None:
                    fault.heal(site)
        return len(tellings) == len(faults)

    site.await_that(is_told, lambda: f"of {sorted(begun)} are told {sorted(site.told.standing())}")
    for telling in tellings.values():
        finding, fault = telling.finding, telling.fault
        assert finding["severity"] == fault.severity, finding
        assert all(name in finding["text"] for name in fault.names), finding
        assert finding["kind"] == fault.finding.partition("/")[0]
    return [tellings[fault.finding] for fault in faults]
