"""Pages that list the numbered statements of a standard with the tests that show them, and docstrings that cite them.

statements = Statements("mqtt_statements.md", ("tests/node/mqtt",))
statements.page              named_tests(cell)              statements.missing(names)
statements.unlisted(listed, cited)      those that a docstring cites, and whose row does not name the test
"""

import ast
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]

_NAMED: Final = re.compile(r"`(test_\w+)`")

Number = TypeVar("Number", bound=Hashable)


def named_tests(cell: str) -> tuple[str, ...]:
    """Return the tests that a cell of the table names."""
    return tuple(_NAMED.findall(cell))


def has_tests_or_a_reason(cell: str) -> bool:
    """True unless a cell begins like a test's name, and names none."""
    return bool(named_tests(cell)) or not cell.startswith("`")


class Statements:
    """A page below docs.   folders: those of the tests that it may name."""

    def __init__(self, page: str, folders: Collection[str]) -> None:
        self.page = (ROOT / "docs" / page).read_text()
        self._folders = folders

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names of which there is no test."""
        known = {name for name, _ in self._tests()}
        return [name for name in names if name not in known]

    def unlisted(
        self, listed: Mapping[Number, Collection[str]], cited: Callable[[str], Iterable[Number]]
    ) -> list[str]:
        """Return the tests whose docstrings cite statements at which they are not listed.

        listed: the tests by statement.   cited: returns the statements that a docstring cites.
        """
        return [
            f"{name} cites {number}"
            for name, docstring in self._tests()
            for number in cited(docstring)
            if name not in listed.get(number, ())
        ]

    def _tests(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the docstring of each test."""
        for folder in self._folders:
            for path in sorted((ROOT / folder).rglob("test_*.py")):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                        yield node.name, ast.get_docstring(node) or ""
