"""docs/mqtt_statements.md has each statement of the standards, and the tests that it names."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.kit.statements import Statements, has_tests_or_a_reason, named_tests

STATEMENTS_OF_5: Final = 254
STATEMENTS_OF_3_1_1: Final = 143
"""The numbers of statements in appendix B of each standard."""

MISSING: Final = frozenset({"2.2.1-1"})
"""Numbers that the standard leaves out: of MQTT 5.0."""

STATEMENTS: Final = Statements(
    "mqtt_statements.md",
    (
        "tests/node/mqtt",
        "tests/cluster/mirror",
        "tests/kit",
        "tests/conformance/mqtt",
        "tests/fuzz",
        "tests/chaos",
    ),
)

_ROW: Final = re.compile(r"^\| ([\d.-]*) \| ([\d., -]*) \| ([^|]+) \| ([SCB]) \| ([^|]+) \|$", re.MULTILINE)
_CITED: Final = re.compile(r"(3\.1\.1: )?\[(MQTT-[\d.-]+(?:,\s+MQTT-[\d.-]+)*)\]")


class Row(NamedTuple):
    """A row.   five, three: numbers in 5.0 and in 3.1.1.   shown_by: the cell of tests, or of a reason."""

    five: tuple[str, ...]
    three: tuple[str, ...]
    shown_by: str


def rows() -> list[Row]:
    return [
        Row(tuple(filter(None, (found[1],))), tuple(filter(None, found[2].split(", "))), found[5])
        for found in _ROW.finditer(STATEMENTS.page)
    ]


def cited(docstring: str) -> Iterator[tuple[bool, str]]:
    """Yield the statements that a docstring cites: whether it is of 3.1.1 only, and the number."""
    for found in _CITED.finditer(docstring):
        for number in re.findall(r"MQTT-([\d.-]+)", found[2]):
            yield found[1] is not None, number


def check_numbers(numbers: list[str], count: int) -> None:
    """Check that each section's statements are counted from 1, each once."""
    assert len(numbers) == len(set(numbers)) == count
    for section in {number.partition("-")[0] for number in numbers}:
        found = {int(number.partition("-")[2]) for number in numbers if number.startswith(section + "-")}
        left_out = {int(number.partition("-")[2]) for number in MISSING if number.startswith(section + "-")}
        assert found == set(range(1, max(found) + 1)) - (left_out - found), section


def test_no_statement_is_missing() -> None:
    check_numbers([number for row in rows() for number in row.five], STATEMENTS_OF_5)
    check_numbers([number for row in rows() for number in row.three], STATEMENTS_OF_3_1_1)


def test_each_statement_is_shown_or_has_a_reason() -> None:
    assert [row for row in rows() if not has_tests_or_a_reason(row.shown_by)] == []


def test_the_tests_exist() -> None:
    assert STATEMENTS.missing(name for row in rows() for name in named_tests(row.shown_by)) == []


def test_tests_are_listed_at_the_statements_that_they_cite() -> None:
    listed = {(False, number): named_tests(row.shown_by) for row in rows() for number in row.five}
    listed |= {(True, number): named_tests(row.shown_by) for row in rows() for number in row.three}
    assert STATEMENTS.unlisted(listed, cited) == []


def test_citations_are_read() -> None:
    text = "One [MQTT-3.1.0-1]; two [MQTT-3.1.2-1, MQTT-3.1.2-2]\n (3.1.1: [MQTT-2.3.1-1])."
    assert list(cited(text)) == [
        (False, "3.1.0-1"),
        (False, "3.1.2-1"),
        (False, "3.1.2-2"),
        (True, "2.3.1-1"),
    ]
