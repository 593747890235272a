"""The rules of STYLE.md that a program can check: how long README is, what it links to, how docstrings open.

The tree does not follow all rules yet. The violations are counted below by package, and these counts may only shrink:
a change that rewrites docstrings lowers the number, and new code must not raise it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.test_tidy import DOCUMENTS, NODE, ROOT

README_CHARACTERS_MAX: Final = 9000

TASKS: Final = frozenset(
    {
        "docs/add_node.md",
        "docs/tls.md",
        "docs/upgrade.md",
        "docs/backup.md",
        "docs/replace_node.md",
        "docs/users.md",
        "docs/monitoring.md",
        "docs/from_rabbitmq.md",
        "docs/sizing.md",
        "docs/troubleshooting.md",
        "docs/benchmark.md",
        "docs/internals/tour.md",
        "STYLE.md",
    }
)
"""Pages that README links to, so that each task is found with one click."""

OPENERS: Final = frozenset(
    ("Of", "It", "Its", "They", "Their", "Those", "There", "Who", "Whoever", "What", "Nobody")
)
"""First words of docstrings that cannot be read by themselves."""
OPENERS_LEFT: Final = {"node": 76, "cluster": 31, "spark_ops": 0}
"""Docstrings that still open with one of these, by package."""
SEE_LEFT: Final = {"node": 119, "cluster": 75, "spark_ops": 0}
"""Docstrings that say nothing but where another one is, by package: `typing.override` says it."""

OLD_WORDS: Final = re.compile(
    r"\b(?:reckon\w*|oftener|by and by|in truth|(?:is|are) to be had)\b", re.IGNORECASE
)
OLD_WORDS_LEFT: Final = 7
"""How often they still stand in the source and the documents."""

TOUR_TOLERANCE: Final = 0.05


def _docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text()) <= README_CHARACTERS_MAX


def test_each_task_is_one_click_from_the_readme() -> None:
    links = set(re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text()))
    assert links >= TASKS, TASKS - links


def test_the_tour_is_as_long_as_it_says() -> None:
    """The files of its numbered list have about as many lines as its first paragraph claims."""
    text = (ROOT / "docs" / "internals" / "tour.md").read_text()
    claimed = re.search(r"Its (\d+) files have about ([\d,]+) lines", text)
    assert claimed is not None
    steps = text.partition("\n1. ")[2].partition("\n## ")[0]
    files = set(re.findall(r"`((?:node|cluster)/[\w/]+\.py)`", steps))
    lines = sum(len((ROOT / name).read_text().splitlines()) for name in files)
    assert len(files) == int(claimed[1])
    about = int(claimed[2].replace(",", ""))
    assert abs(lines - about) <= TOUR_TOLERANCE * about, lines


def test_docstrings_stand_alone() -> None:
    """No more of them open with a word that needs the name before it, or only point to another one."""
    openers: Counter[str] = Counter()
    pointers: Counter[str] = Counter()
    for path in NODE:
        for docstring in _docstrings(path):
            openers[_package(path)] += re.split(r"\W", docstring, maxsplit=1)[0] in OPENERS
            pointers[_package(path)] += docstring.startswith("See `")
    assert {name: count for name, count in openers.items() if count > OPENERS_LEFT[name]} == {}
    assert {name: count for name, count in pointers.items() if count > SEE_LEFT[name]} == {}


def test_words_are_of_today() -> None:
    found = sum(
        len(OLD_WORDS.findall(path.read_text())) for path in (*NODE, *DOCUMENTS) if path != ROOT / "STYLE.md"
    )
    assert found <= OLD_WORDS_LEFT, found
