"""Kill a node under load, start it again, see that nothing is missing. Again and again.

    python -m tests.durability.kill_loop --rounds 100 --seed 7

A round is a start, a load, an end by `kill -9`, a restart and a check of every queue. `--stops`: it ends by SIGTERM;
`--power`: what was not synced is lost, too. Rounds come in episodes of one data directory, so that what is left of
one round is what the next begins with. The seed decides everything but the time that things take. A round with a
problem keeps its directory, and the copies of the data that were made after each kill, and says where.

Ends of a round: K killed under load, S stopped under load, k killed while it started, r killed while somebody read
everything, s stopped in peace.
"""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from node.amqp import methods
from tests.durability.check import Check, note_that_acks_were_heard
from tests.durability.ledger import DELAYED, MOVING, UNORDERED, Count, Ledger, QueueLedger
from tests.durability.load import FAN, FANNED, LATER, LATER_ARGUMENTS, LATER_TYPE, QUEUES, Churn, Load
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.load_client import Client, Lost
from tests.kit.node_process import NodeProcess, StartFailed, copy_data

ROUNDS_OF_EPISODE: Final = 5
COPIES_MAX: Final = 8
"""Copies of the data that are kept: those of the last round, and some."""
NUMBERS: Final = Count.numbers()
MUST_BE_0: Final = Count.must_be_0()

PLAIN: Final[dict[str, str]] = {}
TINY: Final = {
    "store.journal_file_size": "65536",
    "msg_store_file_size_limit": "65536",
}
SMALL: Final = {
    "store.journal_file_size": "400000",
    "msg_store_file_size_limit": "262144",
    "queue_index_embed_msgs_below": "200",
    "store.commit_interval": "500",
}
PAGING: Final = {
    "store.journal_file_size": "1000000",
    "msg_store_file_size_limit": "1000000",
    # Some 10 MB, which every node has: all that can leave memory does.
    "vm_memory_high_watermark.absolute": "1000000000",
    "vm_memory_high_watermark_paging_ratio": "0.01",
}
FAULT: Final = re.compile(r"\[(error|critical)\]|Traceback")
FAULT_AFTER_POWER_LOSS: Final = re.compile(r"\[critical\]|Traceback")
ASKED_FOR: Final = re.compile(
    r"Channel error on connection|channel exception not_found: no queue"
    r"|Error on AMQP connection|connection exception connection_forced: \"broker forced .* 'shutdown'"
)
ASKED_FOR_AFTER_KILL: Final = re.compile(f"{ASKED_FOR.pattern}|the file ends inside a record")
SETTINGS: Final = {"plain": PLAIN, "tiny": TINY, "small": SMALL, "paging": PAGING}


@dataclass(slots=True)
class Result:
    """A round.   ends: how the node ended, in order.   start_s: how long the last start took."""

    number: int
    settings: str
    ends: str
    load_s: float
    start_s: float
    count: Count

    @property
    def is_good(self) -> bool:
        """Whether nothing happened that must not."""
        return not self.count.problems

    def row(self) -> list[str]:
        """The cells of the table."""
        start = [str(self.number), self.settings, self.ends, f"{self.load_s:.2f}", f"{self.start_s:.2f}"]
        return start + [str(getattr(self.count, name)) for name in NUMBERS]


HEAD: Final = ["round", "settings", "ends", "load s", "start s", *NUMBERS]
_WIDTHS: Final = [max(7, len(name)) for name in HEAD]


def line(cells: Sequence[str]) -> str:
    """A line of the table."""
    return " ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


class Episode:
    """Some rounds on one data directory, which is below `directory`."""

    def __init__(self, directory: Path, seed: str, *, stops: bool = False, power: bool = False) -> None:
        self._directory = directory
        self._seed = seed
        self._stops = stops
        self._disk = FaultyDisk(directory, directory / "data") if power else None
        self._node = NodeProcess(directory, environment=self._disk.environment if self._disk else {})
        self._churn = Churn()
        self._ledger = Ledger(Count())
        for name in QUEUES:
            self._ledger.queues[name] = QueueLedger(
                name, is_priority=name == "prio", has_order=name not in UNORDERED, moves=name in MOVING
            )
        self._is_fresh = True
        self._may_be_torn = False  # what the last start found
        self._copies = 0

    async def run_round(self, number: int) -> Result:
        """One round. The node is up before it, from the second one on, and after it."""
        random = Random(f"{self._seed}/{number}")
        count = self._ledger.count = Count()
        result = Result(number, random.choice(list(SETTINGS)), "", 0.0, 0.0, count)
        settings = SETTINGS[result.settings]
        try:
            if self._is_fresh:
                self._is_fresh = False
                self._node.start(settings)
                await self._declare()
            load = Load(self._ledger, self._churn, str(number), random)
            await load.start(self._node.host, self._node.port)
            result.load_s = random.uniform(0.2, 1.5)
            await asyncio.sleep(result.load_s)
            was_killed: bool | None = not self._stops
            await self._end(load, result)
            self._after_end(random)
            if random.random() < 0.4:
                self._kill_recovery(random, settings, result)
                # A start that was killed early leaves the mark of a clean stop.
                was_killed = was_killed or None
            is_asked, is_read = random.random() < 0.3, random.random() < 0.15
            if is_read:
                self._node.start(settings)
                await self._kill_reader(random, result)
                was_killed = True
            # After the reader: while it was there, messages moved to other queues, and some are in both.
            expected = self._ask_store(count) if is_asked else None
            self._node.start(settings)
            result.start_s = self._node.start_s
            await Check(self._node, self._ledger, self._churn, was_killed=was_killed).run(random)
            if expected not in (None, count.recovered):
                count.problem(
                    "other", f"`store check` said {expected} messages, {count.recovered} were there"
                )
            if number % ROUNDS_OF_EPISODE == ROUNDS_OF_EPISODE - 1:
                await self._stop_and_check(settings, random, result)
        except (StartFailed, Lost, AssertionError) as error:
            count.problem("other", f"{type(error).__name__}: {error}")
        self._read_log(count)
        return result

    def close(self) -> None:
        """End the node if it runs."""
        self._node.kill()

    async def _declare(self) -> None:
        client = await Client.open(self._node.host, self._node.port)
        channel = await client.channel()
        await channel.call(methods.ExchangeDeclare(exchange=FAN, type="fanout", durable=True))
        later = methods.ExchangeDeclare(
            exchange=LATER, type=LATER_TYPE, durable=True, arguments=LATER_ARGUMENTS
        )
        await channel.call(later)
        for name, arguments in QUEUES.items():
            await channel.call(methods.QueueDeclare(queue=name, durable=True, arguments=arguments))
        for name in FANNED:
            await channel.call(methods.QueueBind(queue=name, exchange=FAN))
        await channel.call(methods.QueueBind(queue=DELAYED, exchange=LATER))
        await channel.call(methods.QueueDeclare(queue="fleeting", durable=False))
        await client.close()

    async def _end(self, load: Load, result: Result) -> None:
        if not self._stops:
            result.ends += "K"
            self._node.kill()
            self._read_log(result.count)
            self._may_be_torn = True
        else:
            result.ends += "S"
            self._node.terminate()
            code = await asyncio.to_thread(self._node.wait)
            self._check_stop(code, result.count)
        await load.end()
        for error in load.errors:
            result.count.problem("other", f"the load: {error!r}")

    def _check_stop(self, code: int, count: Count) -> None:
        if code:
            count.problem("other", f"exit code {code} of a stop")
        self._read_log(count)
        self._may_be_torn = False

    def _kill_recovery(self, random: Random, settings: dict[str, str], result: Result) -> None:
        """Kill it once or twice while it starts."""
        for _ in range(random.randint(1, 2)):
            result.ends += "k"
            self._node.launch(settings)
            time.sleep(random.uniform(0.15, max(0.6, 1.2 * self._node.start_s)))
            self._node.kill()
            self._read_log(result.count)
            self._may_be_torn = True
            self._after_end(random)

    def _ask_store(self, count: Count) -> int:
        """Return how many messages `store check` expects to be recovered; -1 if that is unknown."""
        code, text = self._node.check_store()
        messages = re.search(r"^messages +([\d,]+)", text, re.MULTILINE)
        is_broken = code > 1 or (
            not self._disk and re.search("^(corrupt|missing|unknown): ", text, re.MULTILINE)
        )
        if messages is None or is_broken:
            count.problem("other", f"`store check` ended with {code}: {text}")
            return -1
        return int(messages[1].replace(",", ""))

    async def _kill_reader(self, random: Random, result: Result) -> None:
        """Kill it while somebody reads everything and acknowledges nothing."""
        result.ends += "r"
        client = await Client.open(self._node.host, self._node.port)
        try:
            for number, name in enumerate(QUEUES, 1):
                channel = await client.channel(number)
                await channel.call(methods.BasicConsume(queue=name))
            await asyncio.sleep(random.uniform(0, 0.3))
        finally:
            self._node.kill()
            await client.ended.wait()
        self._read_log(result.count)
        self._may_be_torn = True
        self._after_end(random)

    async def _stop_and_check(self, settings: dict[str, str], random: Random, result: Result) -> None:
        """After a stop in peace everything is as it was."""
        result.ends += "s"
        note_that_acks_were_heard(self._ledger)
        self._check_stop(await asyncio.to_thread(self._node.stop), result.count)
        self._after_end(random)
        self._node.start(settings)
        if "rebuilding" in self._node.log_text():
            result.count.problem("other", "the node doesn't know that it was stopped")
        recovered = result.count.recovered
        await Check(self._node, self._ledger, self._churn, was_killed=False).run(random)
        result.count.recovered = recovered

    def _after_end(self, random: Random) -> None:
        """Lose power, if that is asked for; keep the data as they are then, for whoever looks for a bug."""
        done = self._disk.lose_power(random) if self._disk else []
        if self._copies >= COPIES_MAX:
            shutil.rmtree(self._directory / f"copy.{self._copies - COPIES_MAX}")
        copy = self._directory / f"copy.{self._copies}"
        copy.mkdir()
        if self._node.data.exists():
            copy_data(self._node.data, copy / "data")
        (copy / "lost").write_text("".join(f"{line}\n" for line in done))
        self._copies += 1

    def _read_log(self, count: Count) -> None:
        """Nothing of ours fails, and nothing is found damaged: a kill leaves no more than a torn end, a stop not even
        that. (After a power loss what was not synced is damaged, and said to be.)
        """
        fault = FAULT_AFTER_POWER_LOSS if self._disk else FAULT
        asked_for = ASKED_FOR_AFTER_KILL if self._may_be_torn else ASKED_FOR
        lines = [line for line in self._node.log_text().splitlines() if not asked_for.search(line)]
        signs = [at for at, line in enumerate(lines) if fault.search(line)]
        if signs:
            text = "\n".join(lines[max(0, signs[0] - 2) : signs[0] + 40])
            count.problem("other", f"{self._node.log_path}: {text}")


def run(rounds: int, seed: int, *, stops: bool = False, power: bool = False) -> list[Result]:
    """Run rounds and print them. Directories of rounds with a problem stay."""
    print(line(HEAD), flush=True)
    results: list[Result] = []
    for first in range(0, rounds, ROUNDS_OF_EPISODE):
        directory = Path(tempfile.mkdtemp(prefix="fluffle-faults-"))
        episode = Episode(directory, str(seed), stops=stops, power=power)
        is_good = True
        try:
            for number in range(first, min(rounds, first + ROUNDS_OF_EPISODE)):
                result = asyncio.run(episode.run_round(number))
                results.append(result)
                print(line(result.row()), flush=True)
                is_good = result.is_good
                if not is_good:
                    print(f"  seed {seed}, episode from round {first}, data in {directory}")
                    for problem in result.count.problems:
                        print("  " + problem.replace("\n", "\n    "), flush=True)
                    break
        finally:
            episode.close()
        if is_good:
            shutil.rmtree(directory)
    _print_sum(results)
    return results


def _print_sum(results: list[Result]) -> None:
    sums = [sum(getattr(result.count, name) for result in results) for name in NUMBERS]
    bad = sum(not result.is_good for result in results)
    load_s = sum(result.load_s for result in results)
    start_s = max((result.start_s for result in results), default=0.0)
    print(line(["sum", "", f"{bad} bad", f"{load_s:.1f}", f"{start_s:.2f}", *map(str, sums)]), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns: 1 if a round had a problem."""
    parser = argparse.ArgumentParser(prog="kill_loop", description="Kill a node under load, again and again.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stops", action="store_true", help="end it by SIGTERM instead of kill -9")
    parser.add_argument("--power", action="store_true", help="lose what was not synced, too: needs gcc")
    options = parser.parse_args(arguments)
    results = run(options.rounds, options.seed, stops=options.stops, power=options.power)
    return int(not all(result.is_good for result in results))


if __name__ == "__main__":
    sys.exit(main())
