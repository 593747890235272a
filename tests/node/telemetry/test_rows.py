"""Rows as text: the envelope, numbers, what is left out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.telemetry.rows import Moment, Rows, fragment
from spark_ops.telemetry.schema import FIELDS, VERSION
from tests.node.telemetry.schema_check import parse, problems


def rows() -> Rows:
    return Rows("c", "n@h", "boot", wall=lambda: 1000.5, monotonic=lambda: 7.0)


def test_the_envelope() -> None:
    """spark §2.1: (node, boot_id, kind, seq) tells rows apart; what is not known is left out."""
    made = rows()
    moment = made.now()
    assert moment == Moment(1_000_500, 0)
    lines = [made.line("node", {"conns": 1, "zone": None}, moment, interval_ms=10)]
    lines += [made.line("node", {}, moment), made.line("queue", {"ready": 2}, moment)]
    made.skew_ms, made.skew_err_ms = -3, 1
    made.cluster = "other"
    lines.append(made.line("queue", {"ready": 2}, moment, fixed=fragment({"vhost": "/", "policy": None})))
    first, second, third, fourth = parse(lines)
    names = {"v": VERSION, "cluster": "c", "node": "n@h", "boot_id": "boot", "ts": 1_000_500, "mono_ms": 0}
    assert first == {**names, "kind": "node", "seq": 0, "interval_ms": 10, "conns": 1}
    assert second == {**names, "kind": "node", "seq": 1}
    assert third == {**names, "kind": "queue", "seq": 0, "ready": 2}
    assert fourth == {
        **names,
        "cluster": "other",
        "kind": "queue",
        "seq": 1,
        "skew_ms": -3,
        "skew_err_ms": 1,
        "vhost": "/",
        "ready": 2,
    }


@given(st.text(), st.text())
def test_any_name_can_be_written(queue: str, vhost: str) -> None:
    """One line of ASCII each, also names that are no proper Unicode."""
    made = rows()
    line = made.line("queue", {"queue": queue}, made.now(), fixed=fragment({"vhost": vhost}))
    assert line.isascii()
    assert line.count(b"\n") == 1
    (row,) = parse([line])
    assert (row["queue"], row["vhost"]) == (queue, vhost)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nonsense", 1),
        ("conns", 1.5),
        ("conns", True),
        ("fd_used", 1 << 63),
        ("alarms", ["a", 1]),
        ("zone", 1),
    ],
)
def test_the_check_finds_what_is_wrong(field: str, value: Any) -> None:
    """The tests of rows can fail."""
    made = rows()
    (row,) = parse([made.line("node", {}, made.now())])
    assert problems({**row, field: value})
    assert problems({name: value for name, value in row.items() if name != "ts"})


def test_the_schema_has_the_kinds() -> None:
    """None is written that readers don't know."""
    assert set(FIELDS) == {"node", "queue", "link", "event", "topology"}
