"""docs/security.md names a test for each row; each of them is there."""

import ast
import re
from functools import cache

from tests.kit.server_process import ROOT

_TEST = re.compile(r"`([\w/]+\.py)(?:::(test_\w+))?`")
_PARTS = ("Hostile clients", "Rules of security")


@cache
def _tests(name: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / name).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, functions))


def _rows() -> list[str]:
    text = (ROOT / "docs" / "security.md").read_text()
    rows = []
    for part in _PARTS:
        (body,) = re.findall(rf"^## {part}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        rows += [line for line in body.splitlines() if line.startswith("| ")][1:]
    return rows


def test_each_row_has_a_test_that_is_there() -> None:
    rows = _rows()
    assert len(rows) > 40
    for row in rows:
        named = _TEST.findall(row.rpartition(" | ")[2])
        assert named, row
        for file, test in named:
            assert (ROOT / "tests" / file).is_file(), row
            assert not test or test in _tests(file), f"{file} has no {test}: {row}"
