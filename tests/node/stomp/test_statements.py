"""docs/stomp_statements.md numbers the statements of the standard, and names tests that exist."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDERS: Final = ("tests/node/stomp", "tests/conformance/stomp", "tests/chaos")

_ROW: Final = re.compile(r"^\| (\d+)\.(\d+) \| ([^|]+) \| ([SCB]) \| ([^|]+) \|$", re.MULTILINE)
_LINE: Final = re.compile(r"^\| \d", re.MULTILINE)
_CITED: Final = re.compile(r"\[STOMP-(\d+\.\d+(?:, STOMP-\d+\.\d+)*)\]")


class Row(NamedTuple):
    """A row.   tests: those that are named."""

    section: int
    number: int
    shown_by: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    text = (ROOT / "docs" / "stomp_statements.md").read_text()
    found = [
        Row(int(row[1]), int(row[2]), row[5], tuple(re.findall(r"`(test_\w+)`", row[5])))
        for row in _ROW.finditer(text)
    ]
    assert len(found) == len(_LINE.findall(text)), "a row has another form"
    return found


def all_tests() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each test."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield node.name, ast.get_docstring(node) or ""


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
    for row in rows():
        assert row.tests or not row.shown_by.startswith("`"), row


def test_the_tests_exist() -> None:
    known = {name for name, _ in all_tests()}
    assert [name for row in rows() for name in row.tests if name not in known] == []


def test_tests_are_listed_at_the_statements_that_they_cite() -> None:
    listed = {f"{row.section}.{row.number}": row.tests for row in rows()}
    wrong = [
        f"{name} cites {number}"
        for name, docstring in all_tests()
        for number in cited(docstring)
        if name not in listed.get(number, ())
    ]
    assert wrong == []


def test_citations_are_read() -> None:
    assert cited("One [STOMP-1.1]; two [STOMP-2.1, STOMP-10.2]. STOMP-3.1 is none.") == ["1.1", "2.1", "10.2"]
