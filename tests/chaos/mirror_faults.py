"""Things happen to three nodes with mirrored queues under load; then see that nothing confirmed is missing.

    python -m tests.chaos.mirror_faults --rounds 300 --seed 7 [--kinds all|kill-master,isolate] [--network namespaces]

A round is a fault, and ends when all nodes are up, all queues have all their copies and give and take messages again.
Without `--kinds` each is kill -9 of the node of the master of the queue `hot`, which gets most of the load. Rounds
come in episodes: a new cluster, some faults, then the load ends, every queue is drained, in a half of the episodes
after one more kill of the master, and all is compared. The clients are pika's. An episode with a problem keeps its
directory: configuration, logs, data, and `trace`, which has what happened to each message; of the lost ones the
histories are printed. `confirm s` and `deliver s`: the longest time without one at the worst of the clients of nodes
that nothing was done to; `latest s`: the longest wait for a confirm there; `round s`: the whole round.
"""

import argparse
import asyncio
import contextlib
import gc
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.cluster import ChaosCluster
from tests.chaos.cluster_faults import deck
from tests.chaos.features import Features
from tests.chaos.fluffle_operator import FluffleOperator
from tests.chaos.mirror_ledger import MUST_BE_0, NUMBERS, Count, Ledger, Trace
from tests.chaos.mirror_load import Load
from tests.chaos.mirror_nemesis import MirrorNemesis, mirror_kinds
from tests.chaos.mirrors import Mirrors
from tests.chaos.nemesis import Fault
from tests.chaos.trial import copied_code, run_trial, small_disks
from tests.kit.network import NAMES, NETWORKS, Network, run_inside
from tests.kit.server_process import ROOT

KILL: Final = ("kill-master",)
DOWN_S: Final = 0.6
"""A node that is killed in the loop stays away for this long at most."""
FOREVER: Final = (1e9, 1e9)


@dataclass(slots=True)
class Row:
    """A round."""

    number: int
    fault: Fault
    confirm_s: float
    delivery_s: float
    latest_s: float
    round_s: float

    @property
    def has_survivors(self) -> bool:
        """Whether there were clients to tell how long it took."""
        return len(self.fault.victims) < len(NAMES) and self.fault.kind != "rolling"

    def text(self) -> str:
        """A line of the table."""
        fault = self.fault
        gaps = f"{'-':>11}{'-':>11}{'-':>10}"
        if self.has_survivors:
            gaps = f"{self.confirm_s:11.2f}{self.delivery_s:11.2f}{self.latest_s:10.2f}"
        return (
            f"{self.number:5} {fault.began_at} {fault.kind:14}{fault.text:26}"
            f"{fault.ended - fault.began:8.1f}{fault.up_s:8.1f}{gaps}{self.round_s:9.1f}"
        )


HEAD: Final = (
    f"{'round':>5} {'at':12} {'fault':14}{'':26}{'lasts s':>8}{'up s':>8}"
    f"{'confirm s':>11}{'deliver s':>11}{'latest s':>10}{'round s':>9}"
)


@dataclass(slots=True)
class Outcome:
    """An episode."""

    count: Count = field(default_factory=Count)
    rows: list[Row] = field(default_factory=list)


class Episode:
    """One cluster and some faults.

    kinds: of the faults, in order.   outcome: what has come of them so far.
    is_loop: sessions of the hot queue last as long as their nodes do.   is_plain: without `Features`.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        seed: str,
        kinds: Sequence[str],
        *,
        code: Path = ROOT,
        is_loop: bool = True,
        is_plain: bool = False,
    ) -> None:
        self._random = Random(seed)
        self._kinds = kinds
        self._lasts_s = FOREVER if is_loop else (5.0, 40.0)
        self._is_loop = is_loop
        self._is_plain = is_plain
        self._trace = Trace(directory / "trace")
        self._ledger = Ledger(self._trace)
        self._cluster = ChaosCluster(directory, network, code=code)
        self.outcome = Outcome(self._ledger.count)

    async def run(self, first: int, *, scale: float = 1.0, load: float = 1.0, calm_s: float = 0.5) -> Outcome:
        """All of it.

        first: number of the first round.   scale: of how long faults last.   load: how much is published.
        calm_s: between two faults.
        """
        cluster = self._cluster
        operator = FluffleOperator(cluster)
        clients = Load(cluster, self._ledger, Random(self._random.random()), scale=load)
        nemesis = MirrorNemesis(
            cluster,
            operator,
            Mirrors(cluster, operator),
            Random(self._random.random()),
            clients,
            scale=scale,
            down_s=DOWN_S if self._is_loop else 4.0,
        )
        features = None
        if not self._is_plain:
            features = Features(clients, operator, Random(self._random.random()), scale=load)
        await run_trial(
            cluster,
            clients,
            nemesis,
            self._random,
            drive=lambda: self._drive(nemesis, first, calm_s),
            warm_s=calm_s + 1,
            lasts_s=self._lasts_s,
            features=features,
        )
        if features is not None:
            print(f"      {features.books.note()}", flush=True)
        return self.outcome

    async def _drive(self, nemesis: MirrorNemesis, first: int, calm_s: float) -> None:
        for number, kind in enumerate(self._kinds, first):
            row = await self._round(nemesis, number, kind)
            print(row.text(), flush=True)
            if self._ledger.count.problems:
                break
            await asyncio.sleep(calm_s * self._random.uniform(0.2, 1.8))

    def close(self) -> None:
        """End all processes."""
        self._cluster.close()
        self._trace.close()

    async def _round(self, nemesis: MirrorNemesis, number: int, kind: str) -> Row:
        ledger = self._ledger
        since = time.monotonic()
        fault = await nemesis.run(kind)
        until = time.monotonic()
        survivors = [
            node
            for node in range(3)
            if node not in fault.victims and min(ledger.confirm_times.get(node, [until])) < fault.began
        ]
        row = Row(
            number,
            fault,
            ledger.longest_gap(ledger.confirm_times, survivors, fault.began, until),
            ledger.longest_gap(ledger.delivery_times, survivors, fault.began, until),
            max((waited for node in survivors for waited in ledger.latencies.get(node, ())), default=0.0),
            until - since,
        )
        self.outcome.rows.append(row)
        ledger.forget_times()
        return row


def run(options: argparse.Namespace, network: type[Network], kinds: Sequence[str]) -> list[Outcome]:
    """Run rounds and print them.   options: of the command line."""
    print(HEAD, flush=True)
    outcomes: list[Outcome] = []
    with copied_code() as code:
        dealt = deck(str(options.seed), options.rounds, kinds)
        try:
            for first in range(0, options.rounds, options.episode):
                own = dealt[first : first + options.episode]
                _run_episode(options, network(), own, first, code, outcomes)
                if outcomes[-1].count.problems and not options.go_on:
                    break
        except KeyboardInterrupt:
            print("interrupted: the last episode was not compared")
    print_sum(outcomes)
    return outcomes


def _run_episode(
    options: argparse.Namespace,
    between: Network,
    kinds: Sequence[str],
    first: int,
    code: Path,
    outcomes: list[Outcome],
) -> None:
    directory = Path(tempfile.mkdtemp(prefix="fluffle-mirrors-"))
    is_loop = set(kinds) == set(KILL)
    disks = small_disks(directory) if "disk-full" in kinds else contextlib.nullcontext()
    with disks:
        episode = Episode(
            directory,
            between,
            f"{options.seed}/{first}",
            kinds,
            code=code,
            is_loop=is_loop,
            is_plain=options.plain,
        )
        outcomes.append(episode.outcome)
        try:
            asyncio.run(episode.run(first, scale=options.scale, load=options.load))
        finally:
            episode.close()
            between.close()
    count = outcomes[-1].count
    numbers = ", ".join(f"{name} {getattr(count, name):,}" for name in NUMBERS if getattr(count, name))
    print(f"      {numbers}", flush=True)
    if count.problems:
        print(f"  seed {options.seed}, episode from round {first}, all in {directory}")
        for problem in count.problems:
            print("  " + problem.replace("\n", "\n    "), flush=True)
    elif not options.keep:
        shutil.rmtree(directory)


def print_sum(outcomes: Sequence[Outcome]) -> None:
    """The tables at the end: gaps by kind (of a master that led Raft extra), and counts."""
    rows = [row for outcome in outcomes for row in outcome.rows]
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(row.fault.kind + " leads Raft" * ("leads Raft" in row.fault.text), []).append(row)
    print(f"\n{'':26}{'':>5}{'confirm s':>16}{'deliver s':>16}{'latest s':>16}{'up s':>16}{'round s':>16}")
    print(f"{'kind':26}{'n':>5}" + f"{'median':>9}{'max':>7}" * 5)
    for kind, own in sorted(by_kind.items()):
        seen = [row for row in own if row.has_survivors]
        columns = [
            [row.confirm_s for row in seen],
            [row.delivery_s for row in seen],
            [row.latest_s for row in seen],
            [row.fault.up_s for row in own],
            [row.round_s for row in own],
        ]
        cells = [f"{statistics.median(each):9.2f}{max(each):7.2f}" if each else " " * 16 for each in columns]
        print(f"{kind:26}{len(own):5}" + "".join(cells))
    bad = sum(bool(outcome.count.problems) for outcome in outcomes)
    print(f"{len(rows)} faults in {len(outcomes)} episodes, {bad} bad")
    for name in NUMBERS:
        mark = "   must be 0" if name in MUST_BE_0 else ""
        print(f"  {name:16}{sum(getattr(outcome.count, name) for outcome in outcomes):10,}{mark}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns: 1 if there was a problem."""
    parser = argparse.ArgumentParser(
        prog="mirror_faults", description="Faults of mirrored queues under load."
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="loopback")
    parser.add_argument("--kinds", default=",".join(KILL), help="with commas between, or all")
    parser.add_argument("--episode", type=int, default=50, help="faults that one cluster suffers")
    parser.add_argument("--scale", type=float, default=1.0, help="of how long faults last")
    parser.add_argument("--load", type=float, default=1.0, help="of how much is published")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="without delays, retries, dead letters, deduplication, groups, hashes",
    )
    parser.add_argument("--keep", action="store_true", help="keep the directories, also of good episodes")
    parser.add_argument("--go-on", action="store_true", help="also after an episode with a problem")
    options = parser.parse_args(arguments)
    kinds = mirror_kinds() if options.kinds == "all" else options.kinds.split(",")
    if options.network == "namespaces" and not run_inside(
        "tests.chaos.mirror_faults", arguments or sys.argv[1:]
    ):
        return 2
    if options.network == "loopback":
        # Nothing can be cut there.
        kinds = [kind for kind in kinds if not kind.startswith(("isolate", "pair", "resets"))]
    # The books of a long run have millions of entries and no cycles: looking for them would stop all clients.
    gc.disable()
    # Also then the nodes end and the sum is printed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes = run(options, NETWORKS[options.network], kinds)
    return int(any(outcome.count.problems for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
