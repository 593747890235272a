"""A gate is the set of tests that a contributor runs before each commit or that CI runs; lanes run side by side.

    fast    `make test`: rules, transcripts, stores and rings over simulated disks and networks, a smoke test
    all     `make test-all`: these, and real sockets, processes, clocks, browsers, a JVM, containers, and many seeds

A test is of the fast gate if it stands in one of `FAST` and has none of the markers `HEAVY`. Each file belongs to one
lane of a gate: the one that has the longest beginning of its path. A lane is a process of pytest with ports and folders
of its own (tests/run_gate.py). No file may be in no lane of `all`: tests/test_gates.py.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Gate = Literal["fast", "all"]

ROOT: Final = Path(__file__).resolve().parent.parent
HEAVY: Final = frozenset({"real", "slow", "spark", "docker"})
SMOKE: Final = "tests/smoke/"
"""All of it is of the fast gate, although it starts nodes."""
PURE: Final = (
    *(f"tests/cluster/{name}/" for name in ("gm_ring", "membership", "metadata", "mirror", "remote")),
    *(
        f"tests/node/{name}/"
        for name in (
            "amqp",
            "broker",
            "catalogue",
            "client",
            "mqtt",
            "queue",
            "routing",
            "scheduling",
            "stomp",
            "store",
            "websocket",
        )
    ),
    "tests/durable_world/",
    "tests/fuzz/",
    "tests/transcripts/",
)
"""Folders whose tests only compute."""
FAST: Final = (SMOKE, *PURE, "tests/bench/", "tests/cluster/", "tests/node/", "tests/spark_ops/")


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that run one after the other, in one process.

    begins: how the paths of their files begin.   computes: they don't wait, and do the same each time however busy the
    machine is; so they may take what time the others leave.   niceness: what the process asks of the machine.
    apart_from: names of lanes that never run at the same time.
    """

    name: str
    begins: tuple[str, ...]
    computes: bool = False
    niceness: int = 0
    apart_from: tuple[str, ...] = ()


FAST_LANES: Final = (
    Lane("smoke", (SMOKE,)),
    Lane("node", ("tests/node/",), computes=True),
    Lane("cluster", ("tests/cluster/", "tests/durable_world/", "tests/transcripts/"), computes=True),
    Lane("tools", ("tests/bench/", "tests/fuzz/", "tests/spark_ops/"), computes=True),
)
"""The longest first."""

ALL_LANES: Final = (
    # Spark computes, on both cores; the others wait for nodes and would wait for Spark too if it were as eager as they.
    Lane("spark", ("tests/spark_ops/",), computes=True, niceness=10),
    # Links between brokers wait for each other's states, and for RabbitMQ to start and to try again.
    Lane(
        "conformance-links",
        ("tests/conformance/federation/", "tests/conformance/shovel/", "tests/conformance/migrate/"),
    ),
    Lane("processes", (SMOKE, "tests/node/", "tests/cluster/", "tests/bench/", "tests/kit/", "tests/test_")),
    Lane("live", ("tests/spark_ops/live/",)),
    # A browser gives up what it loads when a network interface comes or goes, as those of containers do.
    Lane("ui", ("tests/ui/",), apart_from=("deploy",)),
    Lane(
        "conformance-cluster",
        (
            "tests/conformance/test_cluster_",
            "tests/conformance/test_plans_live",
            "tests/conformance/test_section_9_",
        ),
    ),
    Lane("chaos", ("tests/chaos/",)),
    Lane("deploy", ("tests/deploy/", "tests/docs/", "tests/chaos/containers/")),
    Lane("conformance-mirrors", ("tests/conformance/test_mirrors_",)),
    Lane("conformance", ("tests/conformance/",)),
    Lane("adversity", ("tests/adversity/", "tests/security/")),
    Lane("durability", ("tests/durability/",)),
    Lane("conformance-http", ("tests/conformance/http/",)),
    Lane("sim", ("tests/sim/",), computes=True, niceness=19),
    Lane("pure", PURE, computes=True, niceness=19),
)
"""The longest first. A browser's loop and another one cannot be in one process: the UI has a lane of its own."""

LANES: Final[dict[Gate, tuple[Lane, ...]]] = {"fast": FAST_LANES, "all": ALL_LANES}


def is_fast(path: str, markers: Collection[str]) -> bool:
    """Whether a test is of the fast gate.   path: of its file, from the root.   markers: the names of its markers."""
    return path.startswith(SMOKE) or (path.startswith(FAST) and HEAVY.isdisjoint(markers))


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
