"""Things happen to three nodes under load, one after the other; then see that nothing is missing and all agree.

    python -m tests.chaos.cluster_faults --rounds 40 --seed 7 [--network proxies|namespaces] [--kinds kill,pair]

A round is a fault and what it did to the service. Rounds come in episodes: a new cluster, some faults, then the
load ends, every queue is drained from another node than its home, and all is compared. The seed decides everything
but the time that things take. An episode with a problem keeps its directory: configuration, logs, data.
`quiet s` is the longest time without a confirm between nodes that nothing was done to; `declare s` the longest
without a metadata change on the better one of them; `up s` how long after the fault all nodes saw all.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.broker import NodeFailed
from tests.chaos.check import FinalCheck, settle
from tests.chaos.cluster import ChaosCluster
from tests.chaos.ledger import MUST_BE_0, NUMBERS, Count, Ledger
from tests.chaos.nemesis import Fault, Nemesis
from tests.chaos.workload import Workload
from tests.kit.load_client import Lost
from tests.kit.network import NAMES, NETWORKS, Network, run_inside
from tests.kit.server_process import ROOT

FAULTS_OF_EPISODE: Final = 7
SETTLE_S: Final = 6.0
"""A fault may still be noticed this long after its end: the lease."""


@dataclass(slots=True)
class Row:
    """A round."""

    number: int
    fault: Fault
    quiet_s: float
    declare_s: float

    def text(self) -> str:
        """A line of the table."""
        fault = self.fault
        lasted_s = fault.ended - fault.began
        quiet = f"{self.quiet_s:9.1f}" if len(fault.victims) < len(NAMES) else f"{'-':>9}"
        return (
            f"{self.number:5} {fault.began_at} {fault.kind:14}{fault.text:24}{lasted_s:8.1f}{fault.up_s:8.1f}"
            f"{quiet}{self.declare_s:11.1f}"
        )


HEAD: Final = (
    f"{'round':>5} {'at':12} {'fault':14}{'':24}{'lasts s':>8}{'up s':>8}{'quiet s':>9}{'declare s':>11}"
)


@dataclass(slots=True)
class Outcome:
    """An episode."""

    count: Count = field(default_factory=Count)
    rows: list[Row] = field(default_factory=list)
    base_mib: int = 0
    end_mib: int = 0


class Episode:
    """One cluster and some faults.   kinds: of the faults, in order.   scale: of how long they last."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        seed: str,
        kinds: Sequence[str],
        *,
        code: Path = ROOT,
        has_ram: bool = False,
    ) -> None:
        self._random = Random(seed)
        self._kinds = kinds
        self._ledger = Ledger()
        self._cluster = ChaosCluster(directory, network, code=code, has_ram=has_ram)
        self._outcome = Outcome(self._ledger.count)

    async def run(
        self,
        first: int,
        *,
        scale: float = 1.0,
        load: float = 1.0,
        calm_s: float = 1.5,
        settle_s: float = SETTLE_S,
    ) -> Outcome:
        """All of it.

        first: number of the first round.   scale: of how long faults last.   load: how much is published.
        calm_s: between two faults.   settle_s: after the last one; with less than `SETTLE_S` it is not known what of
        the fanout may be missing.
        """
        cluster, count = self._cluster, self._ledger.count
        workload = Workload(cluster, self._ledger, Random(self._random.random()), scale=load)
        nemesis = Nemesis(cluster, Random(self._random.random()), count, scale=scale)
        try:
            await cluster.start()
            base = await settle(cluster)
            await workload.declare()
            workload.start()
            await asyncio.sleep(calm_s)
            for number, kind in enumerate(self._kinds, first):
                workload.calm_since = None
                row = await self._round(nemesis, number, kind)
                workload.calm_since = time.monotonic() + SETTLE_S
                print(row.text(), flush=True)
                await asyncio.sleep(calm_s * self._random.uniform(0.2, 1.8))
            await asyncio.sleep(settle_s + calm_s)
            await workload.stop()
            self._outcome.base_mib = max(rss for rss, _ in base) >> 20
            self._outcome.end_mib = max(node.usage()[0] for node in cluster.nodes) >> 20
            await FinalCheck(cluster, workload, self._random).run(base)
        except (NodeFailed, Lost, AssertionError) as error:
            count.problem("other", f"{type(error).__name__}: {error}")
        return self._outcome

    def close(self) -> None:
        """End all processes."""
        self._cluster.close()

    async def _round(self, nemesis: Nemesis, number: int, kind: str) -> Row:
        fault = await nemesis.run(kind)
        span = (fault.began, fault.ended + fault.up_s)
        quiet_s = self._ledger.longest_gap(self._ledger.confirms, fault.victims, *span)
        declare_s = self._ledger.longest_declare(fault.victims, *span)
        for times in (*self._ledger.confirms.values(), *self._ledger.declares.values()):
            times.clear()
        row = Row(number, fault, quiet_s, declare_s)
        self._outcome.rows.append(row)
        return row


def deck(seed: str, rounds: int, kinds: Sequence[str]) -> list[str]:
    """The kinds of so many rounds: each comes once before any comes again."""
    random = Random(seed)
    found: list[str] = []
    while len(found) < rounds:
        cards = list(kinds)
        random.shuffle(cards)
        found += cards
    return found[:rounds]


def run(options: argparse.Namespace, network: type[Network], kinds: Sequence[str]) -> list[Outcome]:
    """Run rounds and print them.   options: of the command line."""
    print(HEAD, flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="fluffle-chaos-code-") as copied:
        code = _copy(Path(copied)) if options.copy else ROOT
        _run_episodes(options, network, kinds, code, outcomes)
    _print_sum(outcomes)
    return outcomes


def _run_episodes(
    options: argparse.Namespace,
    network: type[Network],
    kinds: Sequence[str],
    code: Path,
    outcomes: list[Outcome],
) -> None:
    rounds, seed = options.rounds, options.seed
    dealt = deck(str(seed), rounds, kinds)
    for first in range(0, rounds, FAULTS_OF_EPISODE):
        directory = Path(tempfile.mkdtemp(prefix="fluffle-chaos-"))
        between = network()
        own = dealt[first : first + FAULTS_OF_EPISODE]
        episode = Episode(directory, between, f"{seed}/{first}", own, code=code, has_ram=options.ram)
        try:
            outcome = asyncio.run(episode.run(first, scale=options.scale, load=options.load))
        finally:
            episode.close()
            between.close()
        outcomes.append(outcome)
        _print_episode(outcome, seed, first, directory)
        if not outcome.count.problems:
            shutil.rmtree(directory)


def _copy(target: Path) -> Path:
    """The packages, so that nobody changes them meanwhile."""
    for package in ("node", "cluster"):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def _print_episode(outcome: Outcome, seed: int, first: int, directory: Path) -> None:
    count = outcome.count
    numbers = ", ".join(f"{name} {getattr(count, name):,}" for name in NUMBERS if getattr(count, name))
    print(f"      {numbers}; {outcome.base_mib} -> {outcome.end_mib} MiB", flush=True)
    if count.problems:
        print(f"  seed {seed}, episode from round {first}, all in {directory}")
        for problem in count.problems:
            print("  " + problem.replace("\n", "\n    "), flush=True)


def _print_sum(outcomes: Sequence[Outcome]) -> None:
    rows = [row for outcome in outcomes for row in outcome.rows]
    print("\nby kind: faults, longest up s, quiet s, declare s")
    for kind in sorted({row.fault.kind for row in rows}):
        own = [row for row in rows if row.fault.kind == kind]
        most = [
            max(row.fault.up_s for row in own),
            *(max(each) for each in zip(*map(_gaps, own), strict=True)),
        ]
        print(f"  {kind:14}{len(own):4}" + "".join(f"{each:9.1f}" for each in most))
    bad = sum(bool(outcome.count.problems) for outcome in outcomes)
    print(f"{len(rows)} faults in {len(outcomes)} episodes, {bad} bad")
    for name in NUMBERS:
        mark = "   must be 0" if name in MUST_BE_0 else ""
        print(f"  {name:12}{sum(getattr(outcome.count, name) for outcome in outcomes):10,}{mark}")


def _gaps(row: Row) -> tuple[float, float]:
    return row.quiet_s, row.declare_s


def all_kinds() -> list[str]:
    """Return the kinds of faults that may happen."""
    names = [name for name in vars(Nemesis) if name.startswith("_kind_")]
    return [name.removeprefix("_kind_").replace("_", "-") for name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns: 1 if there was a problem."""
    parser = argparse.ArgumentParser(prog="cluster_faults", description="Faults in a cluster under load.")
    parser.add_argument("--rounds", type=int, default=42)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", choices=("proxies", "namespaces"), default="proxies")
    parser.add_argument("--kinds", default="", help="only these, with commas between")
    parser.add_argument("--ram", action="store_true", help="the third node is a RAM node")
    parser.add_argument("--scale", type=float, default=1.0, help="of how long faults last")
    parser.add_argument("--load", type=float, default=1.0, help="of how much is published")
    parser.add_argument("--copy", action="store_true", help="run a copy of the packages as they are now")
    options = parser.parse_args(arguments)
    if options.network == "namespaces" and not run_inside(
        "tests.chaos.cluster_faults", arguments or sys.argv[1:]
    ):
        return 2
    network = NETWORKS[options.network]
    kinds = options.kinds.split(",") if options.kinds else all_kinds()
    outcomes = run(options, network, kinds)
    return int(any(outcome.count.problems for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
