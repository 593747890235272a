"""Run the tests of a gate: its lanes beside each other (tests/gates.py).

    python -m tests.run_gate fast [ARGUMENT...]        the arguments go to each pytest
    python -m tests.run_gate fast tests/x.py -v        who names files gets them in one pytest, whatever their gate
    FLUFFLE_WAITING=5 python -m tests.run_gate all     so many lanes that wait at a time

Each lane is a process with a folder of its own for what is temporary, and with its own registry of nodes; ports come
from tests/kit/ports.py. What it says is kept in `var/tests`, and printed when it ends. No test runs twice: what fails
has failed. All that is tried with fresh seeds follows from one number, which the fast gate never changes.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from tests.gates import LANES, ROOT, Gate, Lane, files_of, files_with_tests

KEPT: Final = ROOT / "var" / "tests"
WAITING: Final = int(os.environ.get("FLUFFLE_WAITING", "3"))
"""So many lanes that wait run at a time: on two cores they take some half of them."""
COMPUTING: Final = os.cpu_count() or 1
"""So many lanes that compute run at a time."""
LIMIT_S: Final[dict[Gate, float]] = {"fast": 1800.0, "all": 3600.0}
"""A gate that takes longer hangs: its lanes are interrupted, which says where."""
GRACE_S: Final = 30.0
"""An interrupted lane may take this long to end its nodes."""
LOOK_S: Final = 0.2
FIXED_SEED: Final = "1"
INTERRUPTED: Final = 130
NONE_FOUND: Final = 5
"""Pytest ends with this code when it has no test to run."""
SELECTS: Final[dict[Gate, tuple[str, ...]]] = {
    "fast": ("--fast",),
    "all": ("-rs", "--durations=15", "--durations-min=5"),
}
"""A gate gives these options to pytest. All of them say what was skipped, and why, and what took longest."""
_FIRST_PART: Final = re.compile(r"^=+ ", re.MULTILINE)
_COUNTED: Final = re.compile(r"^(?:.* in \d.*|no tests ran.*)$", re.MULTILINE)


@dataclass
class Run:
    """A lane that runs."""

    lane: Lane
    process: "subprocess.Popen[bytes]"
    output: Path

    def told(self) -> str:
        """Return what it has printed."""
        return self.output.read_text(errors="replace")

    def report(self, status: int, cpu_s: float) -> str:
        """Return what is to be seen of it: all if it failed, else what comes behind the dots.

        cpu_s: how long it and the processes that it has waited for kept a core busy, in seconds.
        """
        told = self.told()
        counted = _COUNTED.findall(told)
        head = f"{self.lane.name}: " + (counted[-1].strip("= ") if counted else f"ended with {status}")
        head += f", {cpu_s:.0f} s of CPU"
        part = _FIRST_PART.search(told)
        if status not in (0, NONE_FOUND):
            return f"{head}\n{told}"
        return f"{head}\n{told[part.start() :] if part else ''}".rstrip()


class Gatekeeper:
    """The lanes of a gate, of which so many run at a time.   home: a folder for theirs."""

    def __init__(self, gate: Gate, arguments: Sequence[str], home: Path, seed: str) -> None:
        self._gate = gate
        self._arguments = arguments
        self._home = home
        self._seed = seed
        self._began = time.monotonic()
        files = files_with_tests()
        self._files = {lane.name: files_of(lane, gate, files) for lane in LANES[gate]}
        self._left = [lane for lane in LANES[gate] if self._files[lane.name]]
        self._running: list[Run] = []
        self._statuses: list[int] = []

    def run(self) -> int:
        """Run all lanes. Returns: 0 if nothing failed."""
        try:
            while self._left or self._running:
                self._start_some()
                self._look()
                if self.has_taken_too_long():
                    print(f"the gate has taken {LIMIT_S[self._gate]:.0f} s: it hangs", flush=True)
                    return 1
                time.sleep(LOOK_S)
        finally:
            self._interrupt()
        failed = [status for status in self._statuses if status not in (0, NONE_FOUND)]
        if failed:
            return 1
        return 0 if 0 in self._statuses else NONE_FOUND

    def has_taken_too_long(self) -> bool:
        """Whether the gate hangs."""
        return time.monotonic() - self._began > LIMIT_S[self._gate]

    def _start_some(self) -> None:
        for lane in list(self._left):
            beside = sum(run.lane.computes is lane.computes for run in self._running)
            if beside < (COMPUTING if lane.computes else WAITING) and not self._is_kept_apart(lane):
                self._left.remove(lane)
                self._running.append(self._start(lane))

    def _is_kept_apart(self, lane: Lane) -> bool:
        """Whether the lane must wait for one that runs."""
        running = [run.lane for run in self._running]
        return any(other.name in lane.apart_from or lane.name in other.apart_from for other in running)

    def _start(self, lane: Lane) -> Run:
        folder = self._home / str(len(list(self._home.iterdir())))  # short: sockets have paths, too
        folder.mkdir(mode=0o700)
        output = KEPT / f"{self._gate}-{lane.name}.txt"
        own = (*SELECTS[self._gate], "--basetemp", str(folder / "t"))
        cache = ("-o", f"cache_dir={ROOT}/.pytest_cache/{self._gate}-{lane.name}")
        nice = ("nice", "-n", str(lane.niceness))
        command = [*nice, sys.executable, "-m", "pytest", *own, *cache, *self._arguments]
        own_folder = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
        with output.open("wb") as out:
            process = subprocess.Popen(
                [*command, *self._files[lane.name]],
                cwd=ROOT,
                env={**inherited(), **own_folder, "FLUFFLE_SEED": self._seed},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Run(lane, process, output)

    def _look(self) -> None:
        """Tell of those that have ended."""
        for run in list(self._running):
            before_s = _cpu_s()
            status = run.process.poll()
            if status is not None:
                self._running.remove(run)
                self._statuses.append(status)
                print(f"{time.strftime('%H:%M:%S')} {run.report(status, _cpu_s() - before_s)}", flush=True)

    def _interrupt(self) -> None:
        """End what still runs, as Ctrl-C would; what it then says is printed."""
        for run in self._running:
            run.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_S
        for run in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, signal.SIGKILL)
            before_s = _cpu_s()
            status = run.process.wait()
            print(f"interrupted: {run.report(status, _cpu_s() - before_s)}", flush=True)


def _cpu_s() -> float:
    """Return how long all processes that were waited for have kept a core busy, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Give a folder for the lanes, with a short path; it goes at the end, whatever tests have made read-only there."""
    made = Path(tempfile.mkdtemp(prefix="fl"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does, and the lanes hear SIGINT even where a shell has told us not to."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def inherited() -> dict[str, str]:
    """Return the environment for lanes. Bytecode is kept: they start hundreds of nodes, each of which would compile."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def names_files(arguments: Sequence[str]) -> bool:
    """Whether some of the arguments are files with tests, folders of them or tests in them."""
    places = (each.partition("::")[0] for each in arguments if each.startswith("tests/"))
    return any((ROOT / place).exists() for place in places)


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns: the exit code."""
    gate, *others = arguments
    assert gate in get_args(Gate), gate
    if names_files(others):
        return subprocess.call([sys.executable, "-m", "pytest", *others], cwd=ROOT)
    seed = os.environ.get("FLUFFLE_SEED") or (FIXED_SEED if gate == "fast" else str(int(time.time())))
    KEPT.mkdir(parents=True, exist_ok=True)
    began, before_s = time.monotonic(), _cpu_s()
    with _interruptible(), _home() as home:
        try:
            status = Gatekeeper(gate, others, home, seed).run()
        except KeyboardInterrupt:
            return INTERRUPTED
    word = "well" if status == 0 else "no tests ran" if status == NONE_FOUND else "FAILED"
    took_s, cpu_s = time.monotonic() - began, _cpu_s() - before_s
    print(f"{gate}: {word}, in {took_s:.0f} s, {cpu_s:.0f} s of CPU, FLUFFLE_SEED={seed}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
