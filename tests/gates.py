"""Which tests a contributor runs before each commit, which are for CI, and what of them runs side by side.

    fast    `make test`: rules, transcripts, stores and rings over simulated disks and networks, a smoke test
    rest    what `make test-all` adds: real sockets, processes, clocks, browsers, a JVM, containers, and many seeds

A test is of the fast gate if it stands in one of `FAST` and has none of the markers `HEAVY`. Each file belongs to one
lane of a gate: the one that has the longest beginning of its path. A lane is a process of pytest with ports and folders
of its own (tests/run_gate.py). No test can be in both gates or in none: tests/test_gates.py.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Gate = Literal["fast", "rest"]

ROOT: Final = Path(__file__).resolve().parent.parent
HEAVY: Final = frozenset({"real", "slow", "spark", "docker"})
SMOKE: Final = "tests/smoke/"
"""All of it is of the fast gate, although it starts nodes."""
FAST: Final = (
    SMOKE,
    "tests/bench/",
    "tests/cluster/",
    "tests/durable_world/",
    "tests/fuzz/",
    "tests/node/",
    "tests/spark_ops/",
    "tests/transcripts/",
)


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that run one after the other, in one process.

    begins: how the paths of their files begin.   waits: whether they spend their time on waiting, so that others run
    beside them; else they compute, do the same each time however busy the machine is, and take the time that is left.
    niceness: what the process asks of the machine; a lane that computes asks for nothing.
    """

    name: str
    begins: tuple[str, ...]
    waits: bool = True
    niceness: int = 0


FAST_LANES: Final = (
    Lane("smoke", (SMOKE,)),
    Lane("cluster", ("tests/cluster/", "tests/durable_world/", "tests/transcripts/"), waits=False),
    Lane("node", ("tests/node/",), waits=False),
    Lane("tools", ("tests/bench/", "tests/fuzz/", "tests/spark_ops/"), waits=False),
)
"""The longest first."""

REST_LANES: Final = (
    Lane("conformance", ("tests/conformance/",)),
    Lane(
        "conformance-cluster",
        (
            "tests/conformance/test_cluster_",
            "tests/conformance/test_plans_live",
            "tests/conformance/test_section_9_",
        ),
    ),
    Lane("conformance-mirrors", ("tests/conformance/test_mirrors_",)),
    Lane("spark", ("tests/spark_ops/",), niceness=10),
    Lane("conformance-http", ("tests/conformance/http/",)),
    Lane("processes", ("tests/node/", "tests/cluster/", "tests/bench/", "tests/kit/", "tests/test_")),
    Lane("chaos", ("tests/chaos/",)),
    Lane("adversity", ("tests/adversity/", "tests/security/")),
    Lane("deploy", ("tests/deploy/", "tests/docs/", "tests/chaos/containers/")),
    Lane("ui", ("tests/ui/",)),
    Lane("durability", ("tests/durability/",)),
    Lane("sim", ("tests/sim/",), waits=False),
    Lane(
        "seeds",
        (
            "tests/sim/test_late",
            "tests/sim/test_mirrors",
            "tests/sim/test_plans",
            "tests/durable_world/",
            "tests/fuzz/",
            "tests/transcripts/",
            "tests/node/amqp/",
            "tests/node/broker/",
            "tests/node/catalogue/",
            "tests/node/client/",
            "tests/node/queue/",
            "tests/node/routing/",
            "tests/node/scheduling/",
            "tests/node/store/",
            "tests/cluster/gm_ring/",
            "tests/cluster/membership/",
            "tests/cluster/metadata/",
            "tests/cluster/mirror/",
            "tests/cluster/remote/",
        ),
        waits=False,
    ),
)
"""The longest first. A browser's loop and another one cannot be in one process: the UI has a lane of its own."""

LANES: Final[dict[Gate, tuple[Lane, ...]]] = {"fast": FAST_LANES, "rest": REST_LANES}


def gate_of(path: str, markers: Collection[str]) -> Gate:
    """Return the gate of a test.   path: of its file, from the root.   markers: the names of its markers."""
    if path.startswith(SMOKE) or (path.startswith(FAST) and HEAVY.isdisjoint(markers)):
        return "fast"
    return "rest"


def lane_of(path: str, gate: Gate) -> Lane | None:
    """Return the lane of a file's tests; None: the gate has none for it."""
    found = [(len(begin), lane) for lane in LANES[gate] for begin in lane.begins if path.startswith(begin)]
    return max(found, key=lambda each: each[0])[1] if found else None


def files_with_tests() -> list[str]:
    """Return the paths of all files with tests, from the root, in order."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def files_of(lane: Lane, gate: Gate, files: Iterable[str]) -> list[str]:
    """Return those of the files that the lane runs."""
    return [path for path in files if lane_of(path, gate) == lane]
