"""The loop around a runner, when signals come."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]

INTERRUPTED_EVERYWHERE = """
import faulthandler, signal, sys, time
from itertools import count
from pathlib import Path
from spark_ops.applying.asking import Answer, Ask
from spark_ops.applying.shell import Shell

class Runner:
    '''It asks for something, waits, and ends after some rounds, or a while after it was interrupted.'''
    def __init__(self):
        self.heard, self.rounds = [], 0
    @property
    def is_over(self):
        return self.rounds == 4
    def asks(self, now):
        self.rounds += 1
        return [Ask(1, "lock", {})] if self.rounds == 2 else []
    def answered(self, ask, answer, now): pass
    def take_records(self): return []
    def wake_at(self, now): return now
    def told(self, order, now):
        self.heard.append(order)

class Client:
    def request(self, method, path, body): return Answer(200, {})

class Journal:
    def write(self, records): pass

time.sleep = lambda seconds: None
faulthandler.dump_traceback_later(15, exit=True)
for moment in count():
    runner, seen = Runner(), count()
    def look(frame, event, argument):
        # Within: the signals of the shell itself come and go at its edges.
        if 0 < runner.rounds < 3 and next(seen) == moment:
            signal.raise_signal(signal.SIGTERM)
    shell = Shell(runner, Client(), Journal(), Path(sys.argv[1]), clock=lambda: 0.0)
    sys.setprofile(look)
    shell.run()
    sys.setprofile(None)
    if next(seen) <= moment:
        break
    assert runner.heard == ["interrupt"], (moment, runner.heard)
print("interrupted at", moment, "moments")
"""


def test_a_signal_may_come_at_any_moment(tmp_path: Path) -> None:
    """A signal's handler may run between any two steps of the loop, also while that waits or holds a lock."""
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_EVERYWHERE, str(tmp_path / "control")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[2]) > 50, "it should have been interrupted in many places"
