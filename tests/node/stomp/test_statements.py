"""docs/stomp_statements.md numbers the statements of the standard, and names tests that exist."""

import re
from itertools import groupby
from typing import Final, NamedTuple

from tests.kit.statements import Statements, has_tests_or_a_reason, named_tests

STATEMENTS: Final = Statements(
    "stomp_statements.md", ("tests/node/stomp", "tests/conformance/stomp", "tests/chaos")
)

_ROW: Final = re.compile(r"^\| (\d+)\.(\d+) \| ([^|]+) \| ([SCB]) \| ([^|]+) \|$", re.MULTILINE)
_LINE: Final = re.compile(r"^\| \d", re.MULTILINE)
_CITED: Final = re.compile(r"\[STOMP-(\d+\.\d+(?:, STOMP-\d+\.\d+)*)\]")


class Row(NamedTuple):
    """A row.   shown_by: the cell of the tests that show it, or of the reason why none does."""

    section: int
    number: int
    shown_by: str


def rows() -> list[Row]:
    page = STATEMENTS.page
    found = [Row(int(row[1]), int(row[2]), row[5]) for row in _ROW.finditer(page)]
    assert len(found) == len(_LINE.findall(page)), "a row has another form"
    return found


def cited(docstring: str) -> list[str]:
    """Return the statements that a docstring cites."""
    return [number for found in _CITED.finditer(docstring) for number in re.findall(r"\d+\.\d+", found[1])]


def test_no_number_is_missing() -> None:
    sections = [
        (section, [row.number for row in group])
        for section, group in groupby(rows(), key=lambda r: r.section)
    ]
    assert [section for section, _ in sections] == list(range(1, 10))
    for section, numbers in sections:
        assert numbers == list(range(1, len(numbers) + 1)), section


def test_each_statement_is_shown_or_has_a_reason() -> None:
    assert [row for row in rows() if not has_tests_or_a_reason(row.shown_by)] == []


def test_the_tests_exist() -> None:
    assert STATEMENTS.missing(name for row in rows() for name in named_tests(row.shown_by)) == []


def test_tests_are_listed_at_the_statements_that_they_cite() -> None:
    listed = {f"{row.section}.{row.number}": named_tests(row.shown_by) for row in rows()}
    assert STATEMENTS.unlisted(listed, cited) == []


def test_citations_are_read() -> None:
    assert cited("One [STOMP-1.1]; two [STOMP-2.1, STOMP-10.2]. STOMP-3.1 is none.") == ["1.1", "2.1", "10.2"]
