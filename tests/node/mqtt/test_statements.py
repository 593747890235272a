"""docs/mqtt_statements.md has each statement of the standards, and the tests that it names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]

STATEMENTS_OF_5: Final = 254
STATEMENTS_OF_3_1_1: Final = 143
"""The numbers of statements in appendix B of each standard."""

MISSING: Final = frozenset({"2.2.1-1"})
"""Numbers that the standard leaves out: of MQTT 5.0."""

FOLDERS: Final = (
    "tests/node/mqtt",
    "tests/cluster/mirror",
    "tests/kit",
    "tests/conformance/mqtt",
    "tests/fuzz",
    "tests/chaos",
)

_ROW: Final = re.compile(r"^\| ([\d.-]*) \| ([\d., -]*) \| ([^|]+) \| ([SCB]) \| ([^|]+) \|$", re.MULTILINE)
_CITED: Final = re.compile(r"(3\.1\.1: )?\[(MQTT-[\d.-]+(?:,\s+MQTT-[\d.-]+)*)\]")


class Row(NamedTuple):
    """A row.   five, three: numbers in 5.0 and in 3.1.1.   tests: those that are named."""

    five: tuple[str, ...]
    three: tuple[str, ...]
    shown_by: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    text = (ROOT / "docs" / "mqtt_statements.md").read_text()
    return [
        Row(
            tuple(filter(None, (found[1],))),
            tuple(filter(None, found[2].split(", "))),
            found[5],
            tuple(re.findall(r"`(test_\w+)`", found[5])),
        )
        for found in _ROW.finditer(text)
    ]


def all_tests() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each test."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield node.name, ast.get_docstring(node) or ""


def cited(docstring: str) -> Iterator[tuple[bool, str]]:
    """Yield the statements that a docstring cites.   Returns: whether it is of 3.1.1 only, and the number."""
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
    for row in rows():
        assert row.tests or not row.shown_by.startswith("`"), row


def test_the_tests_exist() -> None:
    known = {name for name, _ in all_tests()}
    assert [name for row in rows() for name in row.tests if name not in known] == []


def test_tests_are_listed_at_the_statements_that_they_cite() -> None:
    listed = {(False, number): row.tests for row in rows() for number in row.five}
    listed |= {(True, number): row.tests for row in rows() for number in row.three}
    wrong = [
        f"{name} cites {'3.1.1' if statement[0] else '5.0'} {statement[1]}"
        for name, docstring in all_tests()
        for statement in cited(docstring)
        if name not in listed.get(statement, ())
    ]
    assert wrong == []


def test_citations_are_read() -> None:
    text = "One [MQTT-3.1.0-1]; two [MQTT-3.1.2-1, MQTT-3.1.2-2]\n (3.1.1: [MQTT-2.3.1-1])."
    assert list(cited(text)) == [
        (False, "3.1.0-1"),
        (False, "3.1.2-1"),
        (False, "3.1.2-2"),
        (True, "2.3.1-1"),
    ]
