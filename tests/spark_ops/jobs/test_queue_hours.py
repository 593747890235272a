"""Hours of queues are summed up from the newest on, whatever the order of their rows."""

import random
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import numpy as np

from spark_ops.jobs.queue_hours import MASTER, MIRROR, OTHER, QueueHour, QueueLoads
from spark_ops.jobs.small_columns import Numbers

HOUR = 3600
COLUMNS = (
    "ms",
    "cpu_us",
    "in_bytes",
    "out_bytes",
    "memory",
    "memory_n",
    "disk",
    "disk_n",
    "last_disk",
    "lag",
)


def hour_of(number: int, *rows: dict[str, Any]) -> QueueHour:
    """Return an hour; a figure that a row lacks is unknown."""

    def longs(name: str) -> Any:
        return np.array([row[name] for row in rows], dtype=np.int64)

    def numbers(name: str) -> Numbers:
        values = np.array([row.get(name) or 0 for row in rows], dtype=np.int64)
        return Numbers(values, np.array([row.get(name) is not None for row in rows], dtype=np.bool_))

    return QueueHour(
        number * HOUR,
        longs("queue"),
        longs("node"),
        longs("role"),
        longs("last_ts"),
        **{name: numbers(name) for name in COLUMNS},
    )


def row(queue: int, node: int, role: int = MASTER, last_ts: int = 0, **figures: int) -> dict[str, Any]:
    return {"queue": queue, "node": node, "role": role, "last_ts": last_ts, **figures}


def test_the_state_is_in_the_newest_row_of_a_master() -> None:
    """The newest hour with a master counts; of rows with equal times, that of the node that comes later."""
    loads = QueueLoads(4, 2, 10 * HOUR)
    newest = hour_of(
        8,
        row(3, 1, MIRROR, 99),
        row(1, 2, MASTER, 50),
        row(1, 0, MASTER, 50),
        row(9, 0, MASTER, 50),
        row(0, 1, MASTER, 40),
        row(0, 2, MASTER, 30),
    )
    assert sorted(loads.add(newest, 3).tolist()) == [1, 4]
    older = hour_of(7, row(1, 0, MASTER, 9), row(3, 0, MASTER, 8), row(0, 0, MASTER, 7))
    assert loads.add(older, 3).tolist() == [1]
    with pytest.raises(AssertionError):
        loads.add(older, 3)


def test_a_size_on_disk_is_that_of_the_newest_row_of_a_copy() -> None:
    """Copies of queues without a number below `queues` count, too; a copy whose newest row knows no size has none."""
    loads = QueueLoads(1, 2, 10 * HOUR)
    loads.add(
        hour_of(
            8, row(0, 0, last_ts=5, last_disk=7), row(0, 0, MIRROR, 6, last_disk=9), row(5, 1, last_ts=1)
        ),
        2,
    )
    assert (loads.disk.tolist(), loads.disk_known.tolist()) == ([9, 0], [True, False])
    loads.add(hour_of(7, row(0, 0, last_disk=1000), row(5, 1, last_disk=1000), row(6, 2, last_disk=4)), 3)
    assert (loads.disk.tolist(), loads.disk_known.tolist()) == ([9, 0, 4], [True, False, True])
    assert [copy >> 20 for copy in loads.copies.tolist()] == [0, 5, 6]


def test_what_the_queues_of_nodes_have() -> None:
    """A copy has one figure, whatever its roles and processes; each is rounded."""
    loads = QueueLoads(1, 1, 10 * HOUR)
    parts = ({"ms": 1000, "cpu_us": 100}, {"ms": 2000, "cpu_us": 201}, {"ms": 1000})
    rows = [
        row(0, 1, MASTER, memory=10, memory_n=2, **parts[0]),
        row(0, 1, MIRROR, memory=11, memory_n=4, **parts[1]),
        row(7, 1, OTHER, memory=100, memory_n=1, **parts[2]),
        row(7, 0, MIRROR, memory_n=0),
    ]
    loads.add(hour_of(8, *rows), 2)
    assert loads.of_nodes[8 * HOUR].cpu.tolist() == [0, 100]
    assert loads.of_nodes[8 * HOUR].memory.tolist() == [0, 104]


def test_the_order_of_rows_changes_nothing() -> None:
    """Unknown figures stay unknown."""
    chance = random.Random(3)
    hours = [
        [
            row(
                chance.randrange(6),
                chance.randrange(3),
                chance.choice((MASTER, MIRROR, MIRROR, OTHER)),
                chance.randrange(10**6),
                **{name: chance.randrange(1, 10**6) for name in COLUMNS if chance.random() < 0.8},
            )
            for _ in range(30)
        ]
        for _ in range(5)
    ]
    found = []
    for _ in range(3):
        loads = QueueLoads(5, len(hours), 10 * HOUR)
        for number, rows in enumerate(hours):
            chance.shuffle(rows)
            loads.add(hour_of(9 - number, *rows), 3)
        figures: list[Any] = [loads.greatest(name) for name in ("memory", "disk")]  # type: ignore[arg-type]
        figures += [loads.load(role, "cpu") for role in (MASTER, MIRROR, OTHER)]
        figures += [loads.percentile(MASTER, "in_bytes"), loads.load(MASTER, "out_bytes")]
        found.append(
            [
                *((each.values.tolist(), each.known.tolist()) for each in figures),
                [(each.cpu.tolist(), each.memory.tolist()) for each in loads.of_nodes.values()],
                (loads.lag.tolist(), loads.disk.tolist(), loads.copies.tolist()),
            ]
        )
    assert found[0] == found[1] == found[2]
    assert not loads.load(OTHER, "cpu").known.any()
