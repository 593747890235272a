"""`python -m bench`: run the workloads on Fluffle and RabbitMQ in alternation; print the table of ratios.

Both brokers run all the time; the broker that is not measured is idle. Workloads on clusters start a cluster of
each broker and stop the single nodes meanwhile. The rounds of a workload alternate (Fluffle, RabbitMQ,
Fluffle, …), so that other load on the machine affects both brokers alike. `--against` compares Fluffle with
another version of it instead of RabbitMQ, `--rabbitmq-too` with both.
"""

import argparse
import contextlib
import gc
import itertools
import json
import os
import platform
import pstats
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import psutil

from bench.client import BenchError
from bench.cluster_servers import Cluster, FluffleCluster, RabbitCluster
from bench.cluster_workloads import CLUSTER_WORKLOADS
from bench.deduplication import DEDUPLICATION_WORKLOADS
from bench.delayed_workloads import DELAYED_WORKLOADS
from bench.durability import DURABLE_WORKLOADS
from bench.exchange_types import EXCHANGE_TYPE_WORKLOADS
from bench.federation import FEDERATION_WORKLOADS
from bench.hostile_workloads import HOSTILE_WORKLOADS
from bench.management import MANAGEMENT_WORKLOADS
from bench.mirror_workloads import MIRROR_WORKLOADS
from bench.mosquitto import Mosquitto
from bench.mqtt import MQTT_WORKLOADS
from bench.report import FAILED, SHORT, Row, Summary, table, table_cells
from bench.servers import (
    REPOSITORY,
    Broker,
    Fluffle,
    ManagedFluffle,
    ManagedRabbitMQ,
    RabbitMQ,
    Server,
    commit,
)
from bench.shovel import SHOVEL_WORKLOADS
from bench.spark import SPARK_WORKLOADS
from bench.spark_plan import PLAN_WORKLOADS
from bench.stomp import STOMP_WORKLOADS
from bench.telemetry import TELEMETRY_WORKLOADS
from bench.workloads import FULL, QUICK, WORKLOADS, Outcome, Scale, Workload

CATALOGUE = (
    *WORKLOADS,
    *EXCHANGE_TYPE_WORKLOADS,
    *DEDUPLICATION_WORKLOADS,
    *SHOVEL_WORKLOADS,
    *FEDERATION_WORKLOADS,
    *STOMP_WORKLOADS,
    *MQTT_WORKLOADS,
    *DURABLE_WORKLOADS,
    *DELAYED_WORKLOADS,
    *CLUSTER_WORKLOADS,
    *MIRROR_WORKLOADS,
    *MANAGEMENT_WORKLOADS,
    *TELEMETRY_WORKLOADS,
    *SPARK_WORKLOADS,
    *PLAN_WORKLOADS,
    *HOSTILE_WORKLOADS,
)
NAME_WIDTH = max(len(workload.name) for workload in CATALOGUE)
OPEN_FILES_WANTED = 20_000
AGAINST_TOLERANCE = 0.05
"""The relative difference that two runs of the same version may have on a quiet machine."""


def main() -> int:
    """Run the benchmark.

    Returns: 0 if all requirements with a verdict are met, 1 if any is missed or a workload failed, 130 after Ctrl-C.
    """
    options = parse_options()
    if options.list:
        for workload in CATALOGUE:
            rows = (f"{row.metric} [{row.unit}] {row.required or ''}".strip() for row in workload.rows)
            print(f"{workload.name:{NAME_WIDTH}} {'  '.join(rows)}")
        return 0
    signal.signal(signal.SIGTERM, _exit_on_signal)
    _raise_open_files()
    gc.disable()  # the generator makes hardly any reference cycles, so collections would only add pauses
    scale = QUICK if options.quick else FULL
    if options.profile:
        return profile(options.profile, scale)
    brokers = _brokers(options)
    names = [server.name for server in (*brokers.servers, *brokers.others)]
    references = [name for name in names if name != Fluffle.name] or [RabbitMQ.name]
    bench = Bench(brokers, references, scale, options.rounds)
    interrupted = False
    with contextlib.ExitStack() as stack:
        for server in brokers.all:
            stack.enter_context(server)
        try:
            # With --against, workloads that need the disk run only if --only names them: the other version may
            # have no persistence.
            for workload in options.only or (WORKLOADS if options.against else CATALOGUE):
                bench.measure(workload)
        except KeyboardInterrupt:
            _log("interrupted: the results so far follow")
            interrupted = True
    report = bench.report(quick=options.quick)
    print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(bench.as_json(), indent=1))
    return 130 if interrupted else 1 if SHORT in report or FAILED in report else 0


def parse_options() -> argparse.Namespace:
    by_name = {workload.name: workload for workload in CATALOGUE}

    def named(name: str) -> Workload:
        if name not in by_name:
            raise argparse.ArgumentTypeError(f"no workload {name}; there are: {', '.join(by_name)}")
        return by_name[name]

    def group(name: str) -> list[Workload]:
        found = [workload for workload in CATALOGUE if workload.name.startswith(f"{name}-")]
        return [named(name)] if name in by_name or not found else found

    def checkout(name: str) -> Path:
        if not (path := Path(name).resolve()).joinpath("node", "__main__.py").exists() or path == REPOSITORY:
            raise argparse.ArgumentTypeError(f"{name} is not another checkout of Fluffle")
        return path

    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmark Fluffle and RabbitMQ side by side."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        type=group,
        default=[],
        metavar="NAME",
        help="run only these workloads, in this order; `mirrors` selects all whose names begin with `mirrors-`",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds per workload and broker; the table shows medians"
    )
    parser.add_argument(
        "--quick", action="store_true", help="rounds of 1 s and smaller counts, for a first look"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures of each round")
    parser.add_argument("--list", action="store_true", help="list the workloads and their requirements")
    parser.add_argument(
        "--profile", type=named, metavar="NAME", help="run one workload on Fluffle under cProfile"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--fluffle-only", action="store_true")
    only.add_argument("--rabbitmq-only", action="store_true")
    only.add_argument(
        "--against", type=checkout, metavar="DIR", help="compare with another checkout of Fluffle"
    )
    parser.add_argument(
        "--rabbitmq-too", action="store_true", help="with --against: compare with RabbitMQ in the same run"
    )
    options = parser.parse_args()
    if options.rabbitmq_too and not options.against:
        parser.error("--rabbitmq-too is for --against")
    options.only = list(itertools.chain.from_iterable(options.only))
    return options


@dataclass
class Brokers:
    """The brokers to measure: single nodes, single nodes with the HTTP API on, and clusters.

    others: brokers that speak MQTT alone.
    """

    servers: list[Broker] = field(default_factory=list)
    managed: list[Broker] = field(default_factory=list)
    clusters: list[Broker] = field(default_factory=list)
    others: list[Broker] = field(default_factory=list)

    def add(self, server: Server, managed: Server, cluster: Cluster) -> None:
        """Add one version of one broker in its three forms."""
        self.servers.append(server)
        self.managed.append(managed)
        self.clusters.append(cluster)

    @property
    def all(self) -> list[Broker]:
        return [*self.servers, *self.managed, *self.clusters, *self.others]

    def asked_by(self, workload: Workload) -> list[Broker]:
        """Return the brokers that a workload can run on."""
        found = self.clusters if workload.clustered else self.managed if workload.managed else self.servers
        return [*found, *(self.others if workload.mqtt else ())]


def _brokers(options: argparse.Namespace) -> Brokers:
    """Return the brokers of this run, not started."""
    brokers = Brokers()
    if not options.rabbitmq_only:
        brokers.add(Fluffle(), ManagedFluffle(), FluffleCluster())
    if there := options.against:
        brokers.add(Fluffle(checkout=there), ManagedFluffle(checkout=there), FluffleCluster(checkout=there))
    if options.fluffle_only or (options.against and not options.rabbitmq_too):
        return brokers
    if RabbitMQ.installed():
        brokers.add(RabbitMQ(), ManagedRabbitMQ(), RabbitCluster())
    else:
        _log("rabbitmq-server is not installed: no ratios")
    if not options.rabbitmq_only and any(workload.mqtt for workload in options.only or CATALOGUE):
        if Mosquitto.installed():
            brokers.others.append(Mosquitto())
        else:
            _log("mosquitto is not installed: no ratios beside it")
    return brokers


@dataclass
class Bench:
    """The brokers and the outcomes of their rounds: by workload, then by the broker's name.

    references: the names of the brokers that Fluffle is compared with.
    """

    brokers: Brokers
    references: Sequence[str]
    scale: Scale
    rounds: int
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    errors: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def measure(self, workload: Workload) -> None:
        """Run all rounds of a workload. A broker that fails one is stopped; it starts again for the next workload."""
        brokers = self.brokers.asked_by(workload)
        for each in self.brokers.all:
            if each not in brokers:
                each.stop()
        servers = [
            server
            for server in brokers
            if server.name not in workload.lacking and (not workload.alone or server.name == Fluffle.name)
        ]
        outcomes = self.outcomes[workload.name] = {server.name: [] for server in servers}
        errors = self.errors[workload.name] = {}
        for _ in range(self._round_count(workload)):
            for server in servers:
                if server.name in errors:
                    continue
                try:
                    outcomes[server.name].append(self._round(workload, server))
                except (BenchError, OSError, ValueError) as error:
                    errors[server.name] = f"{type(error).__name__}: {error}"
                    _log(
                        f"{workload.name:{NAME_WIDTH}} {server.name:9} FAILED: {error}\n{server.last_words()}"
                    )
                    server.stop()

    def _round_count(self, workload: Workload) -> int:
        if workload.rounds is None:
            return self.rounds
        return min(workload.rounds, self.rounds) if self.scale == QUICK else workload.rounds

    def _round(self, workload: Workload, server: Broker) -> Outcome:
        if not server.running or server.settings or (workload.fresh and server.used):
            server.stop()
            server.start()
            self.versions[server.name] = server.version
        server.used = True
        if workload.keeps:
            os.sync()  # so that pages that the previous round left to the kernel are not written during this round
        for each in self.brokers.asked_by(workload):
            each.wait_until_quiet()
        outcome = workload.run(server, self.scale)
        if workload.fresh:
            server.stop()  # so that work that is still pending does not disturb the next broker
        numbers = (f"{row.metric} {outcome.metrics[row.metric]:,.2f} {row.unit}" for row in workload.rows)
        busy = f"CPU {outcome.server_cpu_s:.2f} s, generator {outcome.generator_cpu_s:.2f} s"
        took = f"{outcome.elapsed_s:.1f} s"
        _log(f"{workload.name:{NAME_WIDTH}} {server.name:9} {'  '.join(numbers)}  in {took}, {busy}")
        return outcome

    def summary(self, workload_name: str, server_name: str) -> Summary | None:
        """Return the summary of a workload on a server; None if it did not run there."""
        if server_name not in self.outcomes[workload_name]:
            return None
        rounds = self.outcomes[workload_name][server_name]
        if server_name in self.errors[workload_name] or not rounds:
            return Summary({})
        metrics = {name: [outcome.metrics[name] for outcome in rounds] for name in rounds[0].metrics}
        message_count = sum(outcome.message_count for outcome in rounds)
        cpu_s = sum(outcome.server_cpu_s for outcome in rounds)
        share = sum(o.generator_cpu_s for o in rounds) / sum(o.elapsed_s for o in rounds)
        return Summary(metrics, cpu_s / message_count * 1e6 if message_count else None, share)

    def report(self, *, quick: bool) -> str:
        text = [line for reference in self.references for line in (self._table(reference), "")]
        text += machine()
        text += [f"{name} reports version {version}" for name, version in self.versions.items()]
        text.append(
            f"Medians of {self.rounds} rounds, unless a workload has its own number; CPU is of all nodes;"
            " the generator's CPU is a share of one core."
        )
        if quick:
            text.append("Quick: short rounds and small counts. These verdicts do not count.")
        for name, errors in self.errors.items():
            text += [f"{FAILED} {name} on {server}: {error}" for server, error in errors.items()]
        return "\n".join(text)

    def _table(self, reference: str) -> str:
        """Return the table of all workloads that ran, beside one of the references."""
        lines = []
        for workload in CATALOGUE:
            if workload.name in self.outcomes and (workload.mqtt or reference != Mosquitto.name):
                ours = self.summary(workload.name, Fluffle.name)
                theirs = self.summary(workload.name, reference)
                rows = [_required(row, reference) for row in workload.rows]
                lines += [table_cells(workload.name, row, ours, theirs) for row in rows]
        return table(lines, reference)

    def as_json(self) -> dict[str, object]:
        return {
            "machine": machine(),
            "versions": self.versions,
            "scale": self.scale._asdict(),
            "errors": self.errors,
            "rounds": {
                name: {server: [o._asdict() for o in rounds] for server, rounds in by_server.items()}
                for name, by_server in self.outcomes.items()
            },
        }


def _required(row: Row, reference: str) -> Row:
    """Return the row with its requirement relative to a reference."""
    if reference == RabbitMQ.name:
        return row
    if reference == Mosquitto.name:
        return replace(row, required=row.beside.get(reference))
    return row.not_worse(AGAINST_TOLERANCE)


def profile(workload: Workload, scale: Scale) -> int:
    """Run one round on Fluffle under cProfile, and print the functions that used the most time of each node."""
    with tempfile.TemporaryDirectory(prefix="fluffle-bench-profile-") as directory:
        data = Path(directory)
        kind = ManagedFluffle if workload.managed else Fluffle
        server = FluffleCluster(profile=data) if workload.clustered else kind(profile=data / "node")
        with server:
            server.start()
            outcome = workload.run(server, scale)
        print(f"{workload.name} under cProfile: {outcome.metrics}")
        for file in sorted(data.iterdir()):
            print(f"\n{file.name}:")
            pstats.Stats(str(file)).strip_dirs().sort_stats("tottime").print_stats(40)
    return 0


def machine() -> list[str]:
    """Describe the machine, the disk, the Python version and the commit of the figures."""
    cpu = "?"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    system = f"Linux {platform.release()}, load {load}"
    return [
        f"Machine: {cpu}, {os.cpu_count()} cores, {memory_gb:.0f} GB, {system}",
        f"Data of all brokers in {tempfile.gettempdir()}, on {_filesystem(Path(tempfile.gettempdir()))}",
        f"Python {platform.python_version()}, commit {commit(REPOSITORY) or '?'}, "
        + time.strftime("%Y-%m-%d %H:%M %Z"),
    ]


def _filesystem(path: Path) -> str:
    """Return the type and the device of the file system of a path."""
    mounts = {Path(mount.mountpoint): mount for mount in psutil.disk_partitions(all=True)}
    found = next((mounts[each] for each in (path.resolve(), *path.resolve().parents) if each in mounts), None)
    return f"{found.fstype} ({found.device})" if found else "?"


def _raise_open_files() -> None:
    """Raise the limit of open files for 10,000 connections, here and in the brokers, which inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
