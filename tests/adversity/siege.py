"""Every attack must leave the node's memory, files and log and the latency of others as they were."""

import time
from types import TracebackType
from typing import Final, Self

from node.io.resources import EXCESS_BYTES
from tests.adversity.bystander import Bystander
from tests.kit.node_process import NodeProcess
from tests.kit.patience import patience
from tests.kit.server_process import MIB

SLOWEST_S: Final = 4.0
"""No round trip of a bystander may take longer. One connection is worked on for some 10 ms before the others get
their turn, a read of 256 KB of the costliest input for some 100 ms; the rest is for a machine with two cores and
much to do, the attacker's and the bystander's own threads among it. A node that one client keeps to itself shows
seconds here."""

MEDIAN_S: Final = 0.5
"""Half of the round trips must be faster than this, while one core is busy with the attack."""

KEPT_MIB: Final = EXCESS_BYTES // MIB
"""This may stay above the base: a node gives freed heap back once it holds more than this above the least that it ever
used. It is a plateau and no leak: 20 storms of 10,000 queues on one node end at 20 MiB as 13 do. A leak shows as the
size of the attack."""

CALM_S: Final = 10.0
"""The node may take this long to tidy up after the last socket of the attack is gone."""

_POLL_S: Final = 0.05


class Siege:
    """One attack on a node, with a bystander. What `with` checks at its end:

    peak_mib: the memory above the base that the attack may take at any time, as docs/limits.md derives it.
    kept_mib: what may be left of it, once the attacker's connections are gone, within `CALM_S`.
    slowest_s, median_s: of the bystander's round trips.
    """

    def __init__(
        self,
        node: NodeProcess,
        *,
        peak_mib: int,
        kept_mib: int = KEPT_MIB,
        slowest_s: float = SLOWEST_S,
        median_s: float = MEDIAN_S,
    ) -> None:
        self.node = node
        self.bystander = Bystander(node)
        self._peak_mib = peak_mib
        self._kept_mib = kept_mib
        self._slowest_s = slowest_s
        self._median_s = median_s

    def __enter__(self) -> Self:
        self._base = self.node.rss_bytes()
        self._files = self.node.open_files()
        self.node.reset_peak()
        self.bystander.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calm = kind is None and self._wait_for_calm()
        self.bystander.__exit__(kind, error, trace)
        if kind is not None:
            return
        slowest, median = self.bystander.slowest_s, self.bystander.median_s
        peak = (self.node.peak_bytes() - self._base) / MIB
        report = (
            f"above the base of {self._base / MIB:.0f} MiB: peak {peak:.0f} MiB, "
            f"kept {self.grown_mib():.0f} MiB; files {self._files} -> {self.node.open_files()}; bystander: "
            f"{len(self.bystander.round_trips_s)} round trips, median {median:.4f} s, slowest {slowest:.2f} s"
        )
        print(report)
        assert calm, f"memory or files are not back after {CALM_S} s: {report}"
        assert peak <= self._peak_mib, report
        assert slowest <= self._slowest_s * patience(), report
        assert median <= self._median_s * patience(), report

    def grown_mib(self) -> float:
        """Resident memory now, above the base."""
        return (self.node.rss_bytes() - self._base) / MIB

    def _wait_for_calm(self) -> bool:
        """Whether memory and files are back to the base in time."""
        deadline = time.monotonic() + CALM_S * patience()
        while time.monotonic() < deadline:
            if self.grown_mib() <= self._kept_mib and self.node.open_files() <= self._files:
                return True
            time.sleep(_POLL_S)
        return False
