"""The chaos run: a schedule of faults against three nodes under load, for as long as you like, and what was lost.

    make chaos MINUTES=120 SEED=7
    python -m tests.chaos.run --minutes 10 --seed 7 [--against rabbitmq] [--network namespaces] [--kinds all]

Load, faults and comparison are three parts: `tests.chaos.mirror_load`, `chaos_nemesis` and `mirror_check`. Clients are
pika's, and go through an HAProxy where there is one (`--direct`: to the nodes). The seed gives the schedule, which is
printed and written; `--schedule` runs one that was written. A run is a row of episodes: a new cluster, ten minutes of
load and faults, then everything is drained and compared. `report.txt`, `report.json`, `report.html` and `schedule.json`
are written to the directory of `--report`; what an episode with a problem has left stays where the report says.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.broker import (
    FLUFFLE,
    RABBITMQ,
    START_S,
    BrokerCluster,
    NodeFailed,
    Operator,
    OperatorError,
)
from tests.chaos.chaos_nemesis import (
    DISK,
    NEEDS,
    NEVER,
    SHIM,
    ChaosNemesis,
    abilities_of,
    all_kinds,
    possible,
)
from tests.chaos.cluster import ChaosCluster
from tests.chaos.features import Features
from tests.chaos.fluffle_operator import FluffleOperator
from tests.chaos.mirror_ledger import NUMBERS, Ledger, Trace
from tests.chaos.mirror_load import Load
from tests.chaos.mirrors import Mirrors
from tests.chaos.mqtt_load import MqttLoad
from tests.chaos.outages import outages_of
from tests.chaos.report import FaultRecord, Report, latency_quantiles
from tests.chaos.report_page import page
from tests.chaos.schedule import EPISODE_S, Planned, episodes, from_json, schedule, to_json
from tests.chaos.stomp_load import StompLoad
from tests.chaos.timeline import Timeline
from tests.chaos.trial import copied_code, run_trial, small_disks
from tests.chaos.wide_fanout import WideFanout
from tests.kit import haproxy
from tests.kit.faulty_disk import FaultyDisk, can_build
from tests.kit.network import NAMES, NETWORKS, Network, has_namespaces, run_inside
from tests.kit.server_process import ROOT

WARM_S: Final = 2.0
SESSIONS_S: Final = (5.0, 40.0)
ROW: Final = "{at:>9} {kind:16}{text:44}{lasts:>9}{up:>9}{gap:>9}"
HEAD: Final = ROW.format(at="at s", kind="fault", text="", lasts="lasts s", up="up s", gap="no ok s")


def make_broker(
    options: argparse.Namespace, directory: Path, network: Network, code: Path
) -> tuple[BrokerCluster, Operator]:
    """The nodes, not started, and who operates them."""
    if options.against == FLUFFLE:
        cluster = ChaosCluster(
            directory,
            network,
            code=code,
            is_managed=not options.direct,
            has_mqtt=options.mqtt,
            has_stomp=options.stomp,
        )
        return cluster, FluffleOperator(cluster)
    # It needs RabbitMQ's tools, which most machines don't have.
    from tests.chaos.rabbit_cluster import RabbitCluster, RabbitOptions
    from tests.chaos.rabbit_operator import RabbitOperator

    rabbits = RabbitCluster(directory, network, RabbitOptions.parse(options.rabbitmq))
    return rabbits, RabbitOperator(rabbits)


class Episode:
    """One cluster, and what is planned for it.   directory: short, a socket is in it."""

    def __init__(
        self,
        options: argparse.Namespace,
        directory: Path,
        network: Network,
        code: Path,
        timeline: Timeline,
        report: Report,
    ) -> None:
        self.ledger = Ledger(Trace(directory / "trace"))
        self.ledger.timeline = timeline
        self._options = options
        self._timeline = timeline
        self._report = report
        self._directory = directory
        self._cluster, self._operator = make_broker(options, directory, network, code)
        if any(SHIM in NEEDS.get(kind, ()) for kind in report.kinds):
            for node in self._cluster.nodes:
                node.disk = FaultyDisk(directory / f"disk-{node.short_name}", node.data, takes_notes=False)
        self._haproxy = None if options.direct else self._make_haproxy()

    def _make_haproxy(self) -> haproxy.Haproxy:
        is_fluffle = self._cluster.kind == FLUFFLE
        places = {node.short_name: node.place for node in self._cluster.nodes}
        servers = [
            haproxy.Server(name, place.host, place.port, place.http_port if is_fluffle else None)
            for name, place in places.items()
        ]
        return haproxy.Haproxy(self._directory, servers)

    async def run(self, planned: Sequence[Planned], since_s: float, lasts_s: float, random: Random) -> None:
        """All of it.   since_s: where in the schedule it begins.   lasts_s: of load."""
        cluster, balancer = self._cluster, self._haproxy
        front = None if balancer is None else (balancer.host, balancer.port)
        load = Load(cluster, self.ledger, Random(random.random()), scale=self._options.load, front=front)
        extra = {} if self._options.promote == "default" else {"ha-promote-on-failure": self._options.promote}
        mirrors = Mirrors(cluster, self._operator, extra)
        nemesis = ChaosNemesis(
            cluster, self._operator, mirrors, Random(random.random()), load, scale=self._options.scale
        )
        nemesis.haproxy = balancer
        compared = self._report.compared
        features = self._features(load, random)
        await run_trial(
            cluster,
            load,
            nemesis,
            random,
            ready=self._ready,
            drive=lambda: self._drive(nemesis, load, planned, since_s, lasts_s),
            warm_s=WARM_S,
            lasts_s=SESSIONS_S,
            features=features,
        )
        if features is not None:
            self._report.notes.append(features.books.note())
        if cluster.kind == FLUFFLE:
            self._report.notes.append((await asyncio.to_thread(outages_of, cluster)).note())
        self._report.compared = compared + (not self.ledger.count.unread and self.ledger.count.dequeued > 0)
        self._report.promotions += nemesis.promotions
        self._report.notes += getattr(cluster, "rescues", [])

    def _features(self, load: Load, random: Random) -> Features | None:
        if self._options.plain or not isinstance(self._operator, FluffleOperator):
            return None
        return Features(load, self._operator, Random(random.random()), scale=self._options.load)

    async def _ready(self) -> None:
        if self._haproxy is not None:
            await asyncio.to_thread(self._haproxy.start)
            await self._haproxy.await_up(*NAMES)

    async def _drive(
        self, nemesis: ChaosNemesis, load: Load, planned: Sequence[Planned], since_s: float, lasts_s: float
    ) -> None:
        if self._options.wide:
            load.produce(WideFanout(load, Random(f"wide/{self._options.seed}/{since_s}")).run())
        mqtt = None
        if self._options.mqtt:
            mqtt = MqttLoad(load, self._operator, Random(f"mqtt/{self._options.seed}/{since_s}"))
            await mqtt.begin()
        stomp = None
        if self._options.stomp:
            stomp = StompLoad(load, self._operator, Random(f"stomp/{self._options.seed}/{since_s}"))
            await stomp.begin()
        began = time.monotonic()
        end = began + lasts_s
        self._timeline.watch()
        for number, each in enumerate(planned):
            now = time.monotonic()
            if now >= end:
                self._report.skipped += len(planned) - number
                break
            await asyncio.sleep(max(0.0, began + each.at_s - since_s - now))
            if not await self._is_survived(nemesis, each):
                self._report.skipped += len(planned) - number - 1
                break
        else:
            await asyncio.sleep(max(0.0, end - time.monotonic()))
        if mqtt is not None:
            await mqtt.finish()
            self._report.notes += mqtt.summary()
        if stomp is not None:
            await stomp.finish()
            self._report.notes.append(stomp.summary())
        self._timeline.pause(time.monotonic())

    async def _is_survived(self, nemesis: ChaosNemesis, planned: Planned) -> bool:
        """Do it. Returns: whether all was well again within the limits."""
        timeline = self._timeline
        began = time.monotonic()
        record = FaultRecord(
            began - timeline.began, planned.at_s, planned.kind, under=planned.arguments["under"]
        )
        self._report.faults.append(record)
        timeline.is_quiet = False
        try:
            fault = await nemesis.run_planned(planned)
            record.text, record.lasts_s = fault.text, fault.ended - fault.began
            record.up_s = fault.up_s
        except (AssertionError, OperatorError) as error:
            self.ledger.count.problem("stuck", f"after {planned.kind}: {error}")
            await self._revive()
        timeline.is_quiet = True
        now = time.monotonic()
        record.lasts_s = record.lasts_s or now - began
        record.unavailable_s = timeline.longest_gap(began, now)
        up = "never" if record.up_s is None else f"{record.up_s:.1f}"
        text = record.text + (f" under {record.under}" if record.under else "")
        row = ROW.format(
            at=f"{record.at_s:.1f}",
            kind=record.kind,
            text=text,
            lasts=f"{record.lasts_s:.1f}",
            up=up,
            gap=f"{record.unavailable_s:.2f}",
        )
        print(row, flush=True)
        return record.up_s is not None

    async def _revive(self) -> None:
        """Have as many nodes as possible, so that all can be compared."""
        for node in self._cluster.nodes:
            if not node.is_running:
                node.kill()
                node.launch()
        with contextlib.suppress(NodeFailed):
            await self._cluster.await_up(START_S)

    def close(self) -> None:
        """End all processes."""
        if self._haproxy is not None:
            self._haproxy.close()
        self._cluster.close()
        self.ledger.trace.close()


@contextlib.contextmanager
def _disks(directory: Path, kinds: Sequence[str]) -> Iterator[None]:
    is_needed = any(DISK in NEEDS.get(kind, ()) for kind in kinds)
    with small_disks(directory) if is_needed else contextlib.nullcontext():
        yield


def _run_episode(
    options: argparse.Namespace,
    planned: Sequence[Planned],
    number: int,
    code: Path,
    timeline: Timeline,
    report: Report,
) -> None:
    """One, and what it found into the report."""
    directory = Path(tempfile.mkdtemp(prefix="fluffle-run-"))
    network = NETWORKS[options.network]()
    episode_s = options.episode_minutes * 60
    since_s = number * episode_s
    lasts_s = min(episode_s, options.minutes * 60 - since_s)
    with _disks(directory, report.kinds):
        episode = Episode(options, directory, network, code, timeline, report)
        count = episode.ledger.count
        try:
            random = Random(f"{options.seed}/{number}")
            asyncio.run(episode.run(planned, since_s, lasts_s, random))
        finally:
            episode.close()
            network.close()
            report.episodes += 1
            for name in NUMBERS:
                report.counts[name] += getattr(count, name)
    told = ", ".join(f"{name} {getattr(count, name):,}" for name in NUMBERS if getattr(count, name))
    print(f"          {told}", flush=True)
    if count.problems:
        report.problems += [f"episode {number + 1}, {directory}: {problem}" for problem in count.problems]
        print("\n".join(count.problems), flush=True)
    elif not options.keep:
        shutil.rmtree(directory)


def run(options: argparse.Namespace, planned: Sequence[Planned], report: Report, directory: Path) -> None:
    """All episodes, into the report, which is written after each."""
    timeline = Timeline(time.monotonic())
    print(HEAD, flush=True)
    episode_s = options.episode_minutes * 60
    dealt = episodes(planned, options.minutes, episode_s=episode_s)
    try:
        with copied_code() as code:
            for number, own in enumerate(dealt):
                _run_episode(options, own, number, code, timeline, report)
                _sum_up(report, timeline)
                write(report, planned, directory)
                if report.problems and options.stop:
                    break
    except KeyboardInterrupt:
        report.problems.append("interrupted: the last episode was not compared")
    report.is_over = True
    _sum_up(report, timeline)


def _sum_up(report: Report, timeline: Timeline) -> None:
    """Put into the report what the clients had so far."""
    report.lasted_s = time.monotonic() - timeline.began
    report.confirms = timeline.per_second(timeline.confirms)
    report.deliveries = timeline.per_second(timeline.deliveries)
    report.gaps_s = [end - start for start, end in timeline.gaps]
    report.latency_s = {
        "quiet": latency_quantiles(timeline.quiet),
        "faulty": latency_quantiles(timeline.faulty),
    }


def write(report: Report, planned: Sequence[Planned], directory: Path) -> None:
    """All forms of it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.txt").write_text(report.text())
    (directory / "report.json").write_text(report.to_json())
    (directory / "report.html").write_text(page(report))
    (directory / "schedule.json").write_text(to_json(planned))


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _can_mount() -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="fluffle-disks-") as directory,
        small_disks(Path(directory)) as are,
    ):
        return are


def new_report(options: argparse.Namespace, kinds: Sequence[str]) -> Report:
    """One without figures, which says what is going to be done and what can't."""
    network = NETWORKS[options.network]()
    with tempfile.TemporaryDirectory(prefix="fluffle-run-") as directory:
        try:
            cluster, _ = make_broker(options, Path(directory), network, ROOT)
            abilities = abilities_of(
                cluster, has_haproxy=not options.direct, has_disks=_can_mount(), has_shim=can_build()
            )
        finally:
            network.close()
    can, lacking = possible(kinds, abilities)
    against = options.against
    if options.promote != "default":
        against += f", ha-promote-on-failure={options.promote}"
    if options.against == RABBITMQ and options.rabbitmq:
        against += f", {options.rabbitmq}"
    return Report(
        against=against,
        network=options.network,
        clients="directly" if options.direct else "through HAProxy",
        seed=options.seed,
        minutes=options.minutes,
        began_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        commit=_commit(),
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        kinds=can,
        gaps=[*lacking, *NEVER],
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos", description="Faults by schedule, and what was lost.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", choices=(FLUFFLE, RABBITMQ), default=FLUFFLE)
    parser.add_argument("--network", choices=(*sorted(NETWORKS), "auto"), default="auto")
    parser.add_argument("--kinds", default="all", help="with commas between, or all")
    parser.add_argument("--direct", action="store_true", help="clients don't go through an HAProxy")
    parser.add_argument("--report", type=Path, metavar="DIR", help="default: var/chaos/ and the time")
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="run this one again")
    parser.add_argument("--promote", choices=("when-synced", "always", "default"), default="default",
                        help="ha-promote-on-failure of all policies; default: the broker's")  # fmt: skip
    parser.add_argument("--rabbitmq", default="", metavar="OPTIONS", help="as ignore,tick=60")
    parser.add_argument(
        "--episode-minutes", type=float, default=EPISODE_S / 60, help="that one cluster lives"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of how long faults last")
    parser.add_argument("--load", type=float, default=1.0, help="of how much is published")
    parser.add_argument(
        "--wide", action="store_true", help="flood hundreds of exclusive queues now and then, too"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="without delays, retries, dead letters, deduplication, groups, hashes",
    )
    parser.add_argument("--mqtt", action="store_true", help="clients of MQTT with QoS 1 and 2, too")
    parser.add_argument("--stomp", action="store_true", help="clients of STOMP with receipts, too")
    parser.add_argument("--keep", action="store_true", help="keep the directories, also of good episodes")
    parser.add_argument("--stop", action="store_true", help="after the first episode with a problem")
    return parser


def _settled(options: argparse.Namespace) -> str:
    """Decide what was left open. Returns: why it can't be done, in words; empty: it can."""
    if options.network == "auto":
        options.network = "namespaces" if os.geteuid() == 0 and has_namespaces() else "proxies"
        if options.network == "proxies" and options.against == RABBITMQ:
            options.network = "loopback"
    if not options.direct and haproxy.PROGRAM is None:
        return "there is no haproxy: install it, or say --direct"
    if options.mqtt and options.against == RABBITMQ:
        return "RabbitMQ's plug-in has no QoS 2: leave --mqtt out"
    if options.stomp and options.against == RABBITMQ:
        return "the nodes of RabbitMQ have no listeners for STOMP here: leave --stomp out"
    if options.against == RABBITMQ:
        from tests.chaos.rabbit_cluster import missing

        if why_not := missing():
            return why_not
    unknown = set(options.kinds.split(",")) - {"all", *all_kinds()}
    return (
        f"there is no {', '.join(sorted(unknown))}: it is one of {', '.join(all_kinds())}" if unknown else ""
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns: 1 if there was a problem, 2 if it cannot run."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    why_not = _settled(options)
    if why_not:
        print(f"chaos: {why_not}")
        return 2
    if options.network == "namespaces" and not run_inside("tests.chaos.run", given):
        return 2
    kinds = all_kinds() if options.kinds == "all" else options.kinds.split(",")
    given_schedule = [] if options.schedule is None else from_json(options.schedule.read_text())
    if given_schedule:
        kinds = [kind for kind in kinds if kind in {each.kind for each in given_schedule}]
    report = new_report(options, kinds)
    planned = [each for each in given_schedule if each.kind in report.kinds] or schedule(
        options.seed, options.minutes, report.kinds, episode_s=options.episode_minutes * 60
    )
    directory = options.report or ROOT / "var" / "chaos" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    write(report, planned, directory)
    print("\n".join(each.text() for each in planned), flush=True)
    # The books of a long run have millions of entries and no cycles: looking for them would stop all clients.
    gc.disable()
    # Also then the nodes end and the report is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(options, planned, report, directory)
    write(report, planned, directory)
    print(report.text() + f"\n{directory / 'report.html'}")
    return int(not report.is_clean)


if __name__ == "__main__":
    sys.exit(main())
