"""The chaos run of two sites that are both active: faults of the link and of nodes, and an account of each message.

    make chaos-sites MINUTES=60 SEED=3
    python -m tests.chaos.two_sites --minutes 10 --seed 3 [--kinds cut,kill-site] [--schedule FILE]

It makes two clusters of three nodes in network namespaces (deploy/two-sites/sites), federates queues and an exchange in
both directions, and lets clients of both sites work (`tests.chaos.sites_load`) while a schedule of faults is done
(`tests.chaos.sites_faults`). After each fault all links have to run again and each way has to bring a message that was
sent afterwards. At the end, for each queue, the messages that were

    confirmed at a + confirmed at b + unconfirmed that came = consumed + waiting

Copies beyond the first are counted by what made them. It needs root, `ip` and `iptables`. The clients run in the
namespace between the sites, which cuts do not concern. Exit codes: 0 clean, 1 not, 2 it cannot be run here.
"""

import argparse
import http.client
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.chaos.outages import Outages, spans
from tests.chaos.report import FaultRecord
from tests.chaos.schedule import Planned, from_json, schedule, to_json
from tests.chaos.sites_faults import KINDS, NEEDS_NETEM, SitesFaults
from tests.chaos.sites_ledger import SitesLedger
from tests.chaos.sites_load import BOOKS, SHARED, SITES, USER, SitesLoad
from tests.chaos.sites_report import HEAD, SitesReport, row
from tests.chaos.trial import copied_code
from tests.kit.http_api import HttpApi
from tests.kit.patience import patience, wait_until
from tests.kit.server_process import ROOT
from tests.kit.steady_clients import Address

SCRIPT: Final = ROOT / "deploy" / "two-sites" / "sites"
SUBNETS: Final = {"a": "10.81.1", "b": "10.81.2"}
NUMBERS: Final = (1, 2, 3)
AMQP_PORT: Final = 5672
HTTP_PORT: Final = 15672
LINKS: Final = 3
"""Each site has this many links: two queues and an exchange."""
COMMAND_S: Final = 300.0
"""A command of the script may take so long; only a failing run waits so long."""
WELL_S: Final = 150.0
"""After a fault all links run within this: a half-open connection is noticed in 10 s, and attempts are 30 s apart."""
DRAIN_S: Final = 300.0
"""After the load consumers may take so long for all that waits; only a failing run waits so long."""
POLL_S: Final = 1.0
WARM_S: Final = 3.0
STEADY_S: Final = 5.0
"""Queues have to stay empty for so long before they are taken for drained."""


class ScriptFailed(Exception):
    """A command of the script did not end well."""


class Server(NamedTuple):
    """The HTTP API of a node."""

    management_url: str


def sites(*words: str) -> None:
    """Run a command of the script.   Raises: ScriptFailed."""
    try:
        done = subprocess.run(
            [str(SCRIPT), *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S * patience(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ScriptFailed(f"sites {' '.join(words)} did not end: {error.stdout!r}") from error
    if done.returncode:
        raise ScriptFailed(f"sites {' '.join(words)}: exit code {done.returncode}: {done.stdout}")


def places() -> dict[str, list[Address]]:
    """Return where clients connect to, by site."""
    return {
        site: [Address(AMQP_PORT, f"{subnet}.{number}") for number in NUMBERS]
        for site, subnet in SUBNETS.items()
    }


def links_that_do_not_run(site: str) -> list[str]:
    """Return the links of a site that do not run, with what is wrong, in words; empty: all are well."""
    for number in NUMBERS:
        api = HttpApi(Server(f"http://{SUBNETS[site]}.{number}:{HTTP_PORT}"), USER)
        try:
            answer = api.get("/federation-links")
        except (OSError, http.client.HTTPException):
            continue
        if answer.status == 200:
            return wrong_links(site, answer.json)
    return [f"no node of site {site} tells about its links"]


def wrong_links(site: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is wrong with these links of a site, in words."""
    found = [
        f"{each.get('queue') or each.get('exchange')} at {site}: {each['status']} {each.get('error', '')}".strip()
        for each in rows
        if each["status"] != "running"
    ]
    if len(rows) != LINKS:
        found.append(f"site {site} has {len(rows)} links, not {LINKS}")
    return found


def outages_at(site: str, data: Path) -> Outages:
    """Return when nodes of a site were without a broker, but for nodes that were killed.   data: of all nodes."""
    return Outages([spans([_said(data, f"{site}{number}")]) for number in NUMBERS])


def _said(data: Path, node: str) -> str:
    """Return what a node has said in all its lives, as one text: the ends of lives are the run's own doing."""
    paths = [data / f"{node}.{end}" for end in ("log", "out")]
    return "".join(path.read_text(errors="replace") for path in paths if path.exists())


class SitesRun:
    """A run: load, faults, drain and account, into a report."""

    def __init__(self, report: SitesReport, scale: float) -> None:
        self._report = report
        self._ledger = SitesLedger(BOOKS)
        self._load = SitesLoad(places(), self._ledger, report.rate)
        self._faults = SitesFaults(sites, time.sleep, scale)
        self._began = time.monotonic()

    def run(self, planned: Sequence[Planned]) -> None:
        """Do all of it.   Raises: AssertionError or ScriptFailed if the load could not begin."""
        for site in SITES:
            wait_until(lambda: self._load.is_declared(site), f"queues of site {site}")  # noqa: B023
        self._load.start_consumers()
        _await_none(self._wrong)
        self._load.start_publishers()
        try:
            time.sleep(WARM_S)
            print(HEAD, flush=True)
            self._drive(planned)
        except KeyboardInterrupt:
            self._report.problems.append(
                "interrupted: what follows is an account of what was done until then"
            )
        else:
            self._report.is_over = True
        finally:
            self._finish()

    def _wrong(self) -> list[str]:
        return [text for site in SITES for text in links_that_do_not_run(site)]

    # --- faults ---

    def _drive(self, planned: Sequence[Planned]) -> None:
        self._began = time.monotonic()
        end = self._began + 60 * self._report.minutes
        for number, each in enumerate(planned):
            now = time.monotonic()
            if now >= end:
                self._report.skipped = len(planned) - number
                return
            time.sleep(max(0.0, self._began + each.at_s - now))
            if not self._is_survived(each):
                self._report.skipped = len(planned) - number - 1
                return
        time.sleep(max(0.0, end - time.monotonic()))

    def _is_survived(self, planned: Planned) -> bool:
        """Do a fault.   Returns: whether all was well again within the limits."""
        began = time.monotonic()
        under = planned.arguments["under"]
        record = FaultRecord(began - self._began, planned.at_s, planned.kind, under=under)
        self._report.faults.append(record)
        self._ledger.forget_times()
        try:
            done = self._faults.do(planned)
            ended = time.monotonic()
            record.text, record.lasts_s = done.text, ended - began
            record.unavailable_s = self._ledger.longest_gap(done.untouched, began, ended)
            self._await_well()
            record.up_s = time.monotonic() - ended
        except (ScriptFailed, AssertionError) as error:
            self._report.problems.append(f"STUCK: after {planned.kind} at {record.at_s:.0f} s: {error}")
        print(row(record), flush=True)
        return record.up_s is not None

    def _await_well(self) -> None:
        """Wait until all links run, and something new has come by each way.   Raises: AssertionError."""
        mark = self._ledger.mark()
        _await_none(self._wrong)
        _await_none(lambda: [f"nothing new: {way}" for way in self._ledger.behind(mark)])

    # --- the end ---

    def _finish(self) -> None:
        """Bring all back, let consumers take what waits, and make the account."""
        report = self._report
        try:
            sites("heal")
            sites("start")
        except ScriptFailed as error:
            report.problems.append(f"STUCK: {error}")
        self._load.stop_publishers()
        report.is_drained = self._is_drained()
        self._load.stop_consumers()
        if not report.is_drained:
            self._load.note_waiting()
            report.notes += [f"at the end: {text}" for text in self._wrong()]
            depths = self._load.depths()
            waiting = "a site does not answer" if depths is None else depths
            report.notes.append(f"waiting at the end: {waiting}")
        for site in SITES:
            report.notes.append(f"site {site}: {outages_at(site, Path(os.environ['TWO_SITES_DATA'])).note()}")
        report.accounts = self._ledger.accounts()
        report.problems += self._ledger.problems() + self._load.problems
        report.returned, report.nacked = self._load.returned, self._load.nacked
        report.lasted_s = time.monotonic() - self._began

    def _is_drained(self) -> bool:
        """Wait until consumers have all that was confirmed, and all queues stay empty.   Returns: whether they do."""
        deadline = time.monotonic() + DRAIN_S * patience()
        empty_since: float | None = None
        while (now := time.monotonic()) < deadline:
            if self._load.depths() == {} and self._ledger.is_complete():
                empty_since = empty_since or now
                if now - empty_since > STEADY_S:
                    return True
            else:
                empty_since = None
            time.sleep(POLL_S)
        return False


def _await_none(look: Callable[[], list[str]]) -> None:
    """Wait until nothing is wrong.   Raises: AssertionError with what still is."""
    deadline = time.monotonic() + WELL_S * patience()
    while wrong := look():
        if time.monotonic() > deadline:
            raise AssertionError(f"not well within {WELL_S:.0f} s: {'; '.join(wrong)}")
        time.sleep(POLL_S)


# --- the command ---


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="make chaos-sites",
        description="Two active sites, faults between and in them, and an account of each message.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of load")
    parser.add_argument("--seed", type=int, default=1, help="gives the schedule of faults")
    parser.add_argument(
        "--rate", type=float, default=10.0, help="messages a second of each of ten publishers"
    )
    parser.add_argument("--kinds", default="all", help=f"faults, with commas between: {','.join(KINDS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the times of faults")
    parser.add_argument(
        "--schedule", type=Path, help="a schedule.json of another run, in place of the seed's"
    )
    parser.add_argument("--report", type=Path, default=ROOT / "var" / "chaos-sites", help="directory")
    parser.add_argument("--keep", action="store_true", help="the nodes' data and logs")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def lacking() -> list[str]:
    """Return what this machine lacks for a run, in words."""
    found = [] if os.geteuid() == 0 else ["root, for network namespaces"]
    return found + [f"the program {name}" for name in ("ip", "iptables") if not shutil.which(name)]


def kinds_of(text: str) -> tuple[str, ...]:
    """Return the kinds of faults that an option names.   Raises: ValueError."""
    if text == "all":
        return KINDS
    kinds = tuple(each.strip() for each in text.split(","))
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"there is no {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return kinds


def _can_delay() -> bool:
    """Whether the kernel can delay packets, which is tried."""
    try:
        sites("delay", "1")
    except ScriptFailed:
        return False
    finally:
        sites("heal")
    return True


def write(report: SitesReport, planned: Sequence[Planned], directory: Path) -> None:
    """Write all forms of a report."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.txt").write_text(report.text())
    (directory / "report.json").write_text(report.to_json())
    (directory / "schedule.json").write_text(to_json(planned))


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run_inside(options: argparse.Namespace) -> int:
    """Run where both sites are reached whatever is cut.   Returns: the exit code."""
    # All processes may get it: `_wait_for` makes one SIGINT of it, and a second one would end the account.
    signal.signal(signal.SIGTERM, lambda *_: None)
    kinds, gaps = kinds_of(options.kinds), []
    if NEEDS_NETEM in kinds and not _can_delay():
        kinds = tuple(kind for kind in kinds if kind != NEEDS_NETEM)
        gaps.append(f"{NEEDS_NETEM}: this kernel has no sch_netem")
    if options.schedule:
        planned = from_json(options.schedule.read_text())
    else:
        planned = schedule(options.seed, options.minutes, kinds, episode_s=60 * options.minutes)
    for each in planned:
        print(each.text(), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    began_at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    report = SitesReport(
        options.seed, options.minutes, options.rate, began_at, _commit(), machine, kinds, gaps
    )
    try:
        SitesRun(report, options.scale).run(planned)
    except (ScriptFailed, AssertionError) as error:
        report.problems.append(f"STUCK: {error}")
    write(report, planned, options.report)
    print(f"\n{report.text()}\n{options.report}/report.txt", flush=True)
    return 0 if report.is_clean else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the sites, run, and remove them.   Returns: the exit code."""
    options = options_of(arguments)
    if options.inside:
        return run_inside(options)
    try:
        kinds_of(options.kinds)
        if options.schedule:
            from_json(options.schedule.read_text())
    except (ValueError, OSError) as error:
        print(f"chaos-sites: {error}")
        return 2
    if missing := lacking():
        print(f"chaos-sites: this machine lacks {'; '.join(missing)}")
        return 2
    # The namespaces and nodes go whatever ends this.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A short path: sockets are in it.
    data = Path(tempfile.mkdtemp(prefix="fluffle-sites-"))
    with copied_code() as code:
        os.environ |= {
            # -P: the copy's modules, not those of the directory in which the script is run.
            "FLUFFLE": f"{sys.executable} -P -m node",
            "PYTHONPATH": str(code),
            "TWO_SITES_DATA": str(data),
            "TWO_SITES_PREFIX": f"s{os.getpid()}",
        }
        code_of_exit = _run_outside(sys.argv[1:] if arguments is None else arguments)
    if code_of_exit and any(data.iterdir()):
        print(f"the nodes' logs and data are in {data}")
    elif not options.keep:
        shutil.rmtree(data)
    return code_of_exit


def _run_outside(arguments: Sequence[str]) -> int:
    """Make the sites and run the rest in the namespace between them.   Returns: the exit code."""
    try:
        sites("up")
        sites("start")
        sites("federate", SHARED)
        words = [sys.executable, "-m", "tests.chaos.two_sites", "--inside", *arguments]
        return _wait_for(subprocess.Popen([str(SCRIPT), "in", "wan", *words], cwd=ROOT))
    except ScriptFailed as error:
        print(f"chaos-sites: {error}")
        return 1
    finally:
        sites("down")


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the run, which Ctrl-C and SIGTERM tell to make its account, and which ends by itself then.

    A terminal sends Ctrl-C to the run, too; SIGTERM comes here alone.
    """
    former = signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                print("chaos-sites: the account is made; this takes a minute", flush=True)
    finally:
        signal.signal(signal.SIGTERM, former)


if __name__ == "__main__":
    sys.exit(main())
