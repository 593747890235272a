"""Percentiles, verdicts and the table."""

import pytest

from bench.report import (
    FAILED,
    SHORT,
    AtLeast,
    Below,
    NotAbove,
    NotBelow,
    Requirement,
    Row,
    Summary,
    number,
    percentile,
    table,
    table_cells,
    verdict,
)


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_percentile_of_one_value() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(
    ("required", "ours", "theirs", "expected"),
    [
        (AtLeast(4), 400.0, 100.0, "ok"),
        (AtLeast(4), 399.0, 100.0, SHORT),
        (AtLeast(4), 399.0, None, "no ratio"),
        (NotAbove(), 1.0, 1.0, "ok"),
        (NotAbove(), 1.1, 1.0, SHORT),
        (NotAbove(), 1.1, None, "no ratio"),
        (NotAbove(1.05), 1.05, 1.0, "ok"),
        (NotAbove(1.05), 1.06, 1.0, SHORT),
        (NotBelow(0.3), 0.3, None, "ok"),
        (NotBelow(0.3), 0.29, 0.1, SHORT),
        (Below(500), 499.0, None, "ok"),
        (Below(500), 500.0, 4600.0, SHORT),
        (None, 1.0, 2.0, ""),
        (None, None, 2.0, FAILED),
        (Below(500), None, 2.0, FAILED),
    ],
)
def test_verdict(
    required: Requirement | None, ours: float | None, theirs: float | None, expected: str
) -> None:
    assert verdict(Row("rate", "msg/s", required), ours, theirs) == expected


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (AtLeast(4), AtLeast(0.95)),
        (NotBelow(0.3), AtLeast(0.95)),
        (None, AtLeast(0.95)),
        (NotAbove(), NotAbove(1.05)),
        (Below(500), NotAbove(1.05)),
    ],
)
def test_not_worse_keeps_the_direction(required: Requirement | None, expected: Requirement) -> None:
    """Beside another version a rate must not fall, and a size or a time not grow."""
    assert Row("m", "u", required).not_worse(0.05) == Row("m", "u", expected)


def test_not_worse_of_a_time_without_a_requirement() -> None:
    """A time without a requirement must not grow."""
    assert Row("p99", "ms").not_worse(0.05) == Row("p99", "ms", NotAbove(1.05))


def test_requirements_as_text() -> None:
    """As they stand in the table."""
    texts = [str(each) for each in (AtLeast(4), NotAbove(), NotAbove(1.05), Below(600), NotBelow(0.3))]
    assert texts == ["≥ 4×", "≤ 1×", "≤ 1.05×", "< 600", "≥ 0.3"]


def test_cells_show_medians_and_spread() -> None:
    ours = Summary({"rate": [500_000.0, 400_000.0, 600_000.0]}, 1.234, 0.071)
    theirs = Summary({"rate": [100_000.0]}, 17.0, 0.02)
    assert table_cells("pair", Row("rate", "msg/s", AtLeast(4)), ours, theirs) == [
        "pair", "500,000", "100,000", "msg/s", "5.00×", "≥ 4×", "ok", "40% / 0%", "1.23 / 17.0", "7% / 2%",
    ]  # fmt: skip


def test_cells_of_a_failed_and_an_absent_broker() -> None:
    row = Row("p99", "ms", NotAbove())
    cells = table_cells("loops", row, Summary({}), None)
    assert cells[:7] == ["loops p99", "failed", "-", "ms", "-", "≤ 1×", FAILED]
    assert table_cells("loops", row, None, Summary({"p99": [2.0]}))[6] == "-"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.123, "0.12"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_table_is_aligned() -> None:
    lines = table([["a"] * 10, ["longer than the heading"] * 10], "RabbitMQ").splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 4


def test_table_names_the_reference() -> None:
    """The third column is headed by the reference beside which Fluffle is measured."""
    heading = table([["a"] * 10], "57925ec").splitlines()[0]
    assert [cell.strip() for cell in heading.split("|")[1:5]] == ["workload", "Fluffle", "57925ec", "unit"]
