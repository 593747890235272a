"""A program of examples/ that sends what it is given, a value a line, and says what has been confirmed."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.kit.client_steps import Process
from tests.kit.patience import wait_until

AHEAD_MAX: Final = 10
"""A program may have so many values that it has not confirmed yet."""
LIMIT_S: Final = 60.0
"""For any one thing that must happen. A client may have to wait for a timeout of its own several times."""
POLL_S: Final = 0.1
"""Senders are fed as often: a hundred values a second each, at most."""


class Sender(Process):
    """Reads values from its standard input, and prints each when the broker has it.

    says: the line that it prints then; the value is its group.   prefix: of its values.
    """

    def __init__(
        self, log: Path, *arguments: str, environment: Mapping[str, str], says: re.Pattern[str], prefix: str
    ) -> None:
        super().__init__(log, *arguments, environment=environment, stdin=subprocess.PIPE)
        self._says = says
        self._prefix = prefix
        self._input = self._process.stdin
        self.given: set[str] = set()

    @property
    def confirmed(self) -> set[str]:
        """The values that it has printed."""
        return set(self._says.findall(self.output))

    def feed(self) -> None:
        """Give it some values, unless it has enough. It must not have ended."""
        assert self._process.poll() is None, f"ended while it was to send:\n{self.output}"
        assert self._input is not None
        for _ in range(AHEAD_MAX - len(self.given) + len(self.confirmed)):
            value = f"{self._prefix}{len(self.given)}"
            self._input.write(value.encode() + b"\n")
            self.given.add(value)
        self._input.flush()

    def finish(self) -> None:
        """Give it no more; wait for its end, which must be a good one."""
        assert self._input is not None
        self._input.close()
        await_true(lambda: self._process.poll() is not None, "the end of the sender", self)
        assert self._process.returncode == 0, self.output

    def end(self) -> None:
        if self._input is not None:
            self._input.close()
        super().end()


def await_true(condition: Callable[[], bool], what: str, *processes: Process) -> None:
    """Ask until the answer is true; fails with what the processes have printed at last."""

    def ends() -> str:
        return what + ":\n" + "\n---\n".join(process.output[-3000:] for process in processes)

    wait_until(condition, ends, LIMIT_S)
