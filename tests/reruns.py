"""Which tests that failed in CI may be looked at once more, by themselves.

    FLUFFLE_FAILURES=FILE python -m pytest ...      each failure is noted in the file, and how the run ended
    python -m tests.reruns FILE                     0: all of them may run again; 1: not so, and why

Only what shares the machine with strangers: browsers, processes, sockets, the JVM. A test without these does the same
each time, and one that was told of a lost message has found one: a second run that passes would hide it.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "FLUFFLE_FAILURES"
SOME_FAILED: Final = 1
"""How pytest ends when all tests ran, and some failed."""
TESTS_MAX: Final = 5
"""More than so many have one reason, which is not the machine."""
SHARED: Final = (
    "tests/adversity/",
    "tests/bench/",
    "tests/chaos/",
    *(f"tests/cluster/transport/test_{name}.py" for name in ("processes", "refusals", "transport")),
    "tests/conformance/",
    "tests/deploy/",
    "tests/docs/",
    "tests/durability/",
    *(f"tests/node/process/test_{name}.py" for name in ("agent", "management", "processes", "security")),
    "tests/node/process/test_mirrored_processes.py",
    *(f"tests/node/cli/test_{name}.py" for name in ("cluster", "cluster_nodes", "process", "start")),
    *(f"tests/node/cli/ctl/test_{name}.py" for name in ("health_commands", "main", "tools")),
    *(
        f"tests/node/io/test_{name}.py"
        for name in ("control", "control_server", "server", "session", "tls_handshake")
    ),
    "tests/node/management/test_server.py",
    "tests/security/",
    "tests/spark_ops/cli/test_collect.py",
    "tests/spark_ops/test_live_apply.py",
    "tests/ui/",
)
"""Files and folders whose tests have browsers, processes or clients in them."""
NEVER: Final = re.compile(r"\bViolation\b|\b(?:LOST|DUPLICATES|DISORDER|UNEXPECTED|WRONG): ")
"""What says that a promise was broken."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed.   text: why, as pytest tells it.   is_spark: a JVM runs in it."""

    test: str
    text: str
    is_spark: bool = False


def note(path: str, failure: Failure) -> None:
    """Write down that a test failed."""
    _add(path, asdict(failure))


def note_end(path: str, status: int) -> None:
    """Write down how the run has ended.   status: pytest's."""
    _add(path, {"ended": status})


def _add(path: str, what: dict[str, object]) -> None:
    with Path(path).open("a") as file:
        file.write(json.dumps(what) + "\n")


def read(path: str) -> tuple[list[Failure], int | None]:
    """The failures of a run, and how it ended; None: something has ended it."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []
    ended = [int(line["ended"]) for line in lines if "ended" in line]
    return [Failure(**line) for line in lines if "test" in line], ended[-1] if ended else None


def why_not(failures: Sequence[Failure], ended: int | None) -> list[str]:
    """Why these must not run again, in words; nothing: they may."""
    if ended != SOME_FAILED:
        return [f"the run did not come to its end: {ended}"]
    found = [f"{each.test}: {reason}" for each in failures if (reason := _why_not(each))]
    if len({each.test for each in failures}) > TESTS_MAX:
        found.append(f"{len(failures)} tests failed, more than {TESTS_MAX}")
    return found


def _why_not(failure: Failure) -> str:
    if told := NEVER.search(failure.text):
        return f"it has found what must not be: {told[0].strip(': ')}"
    if not (failure.is_spark or failure.test.startswith(SHARED)):
        return "it does the same each time"
    return ""


def main(arguments: Sequence[str]) -> int:
    """The command."""
    failures, ended = read(arguments[0])
    reasons = why_not(failures, ended)
    for reason in reasons:
        print(f"not again: {reason}")
    if not reasons:
        names = sorted({each.test for each in failures})
        print(f"again, by themselves: {len(names)} tests that failed")
        print("\n".join(f"  {name}" for name in names))
    return int(bool(reasons) or not failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
