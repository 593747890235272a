"""The cost of telemetry: the same flows on a node with telemetry and on a node without, in one run.

Requirement: at most 2 % of throughput.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.flow import Acks
from bench.report import Below, NotBelow, Row
from bench.servers import Fluffle, Server
from bench.workloads import OneQueue, Outcome, Scale, Workload

ROUNDS = 9
"""The number of alternating rounds: odd, so that the median is one of them."""


class TelemetryFluffle(Fluffle):
    """A node of Fluffle that writes telemetry."""

    name = "Fluffle, telemetry"

    def command(self) -> Sequence[str]:
        return [*super().command(), "--telemetry", str(self.directory / "telemetry")]


@dataclass(frozen=True)
class TelemetryShare:
    """Results of a workload on a node with telemetry, relative to those on a node without.

    share: ratio of rates.   cpu: ratio of CPU seconds per message. Medians of ROUNDS pairs; the order within a pair
    alternates, since the machine may get slower or faster meanwhile.
    """

    workload: OneQueue

    def __call__(self, server: Server, scale: Scale) -> Outcome:
        pairs: list[tuple[Outcome, Outcome]] = []
        with Fluffle() as plain, TelemetryFluffle() as watched:
            plain.start()
            watched.start()
            for number in range(ROUNDS):
                if number % 2:
                    after = self.workload(watched, scale)
                    pairs.append((self.workload(plain, scale), after))
                else:
                    pairs.append((self.workload(plain, scale), self.workload(watched, scale)))
        shares = [with_.metrics["rate"] / without.metrics["rate"] for without, with_ in pairs]
        cpu = [_cpu_s(with_) / _cpu_s(without) for without, with_ in pairs]
        return pairs[-1][1]._replace(
            metrics={"share": statistics.median(shares), "cpu": statistics.median(cpu)}
        )


def _cpu_s(round_: Outcome) -> float:
    return round_.server_cpu_s / round_.message_count


_REQUIRED = [Row("share", "×", NotBelow(0.98)), Row("cpu", "×", Below(1.02))]

TELEMETRY_WORKLOADS: tuple[Workload, ...] = (
    Workload("telemetry", TelemetryShare(OneQueue()), _REQUIRED, alone=True),
    Workload(
        "telemetry-confirms",
        TelemetryShare(OneQueue(confirm_window=1000, acks=Acks.EACH, prefetch=500, gather_count=100)),
        _REQUIRED,
        alone=True,
    ),
)
