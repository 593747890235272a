"""The rules of STYLE.md that a program can check: how long README is, what it links to, how docstrings open."""

import re
from typing import Final

from tests.kit.source import source
from tests.test_tidy import DOCUMENTS, NODE, PYTHON, ROOT

README_CHARACTERS_MAX: Final = 9000
ARCHITECTURE_WORDS_MAX: Final = 1500

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

TEST_OPENERS: Final = OPENERS | frozenset(
    ("How", "Where", "Which", "Whose", "That", "Then", "Also", "And", "Or", "Nor", "But", "Else", "Until")
)
"""Docstrings of tests begin with none of these either, those behind constants and attributes included."""

FRAGMENT: Final = re.compile(r"The same\b|So (?:that|as)\b|See `")
"""Beginnings of docstrings that need the line above them."""

OLD_WORDS: Final = re.compile(
    r"\b(?:reckon\w*|oftener|by and by|in truth|(?:is|are) to be had)\b", re.IGNORECASE
)
"""Words of older or literary English, which STYLE.md rules out."""

TOUR_TOLERANCE: Final = 0.05


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text()) <= README_CHARACTERS_MAX


def test_the_architecture_is_short() -> None:
    """A reader has it all in a few minutes; docs/internals has the rest."""
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= ARCHITECTURE_WORDS_MAX


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
    """None opens with a word that needs the name before it, or only points to another one."""
    bench = [path for path in PYTHON if path.is_relative_to(ROOT / "bench")]
    found = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in (*NODE, *bench)
        for docstring in source(path).docstrings
        if re.split(r"\W", docstring, maxsplit=1)[0] in OPENERS or docstring.startswith("See `")
    ]
    assert found == []


def test_docstrings_of_tests_stand_alone() -> None:
    """A test's docstring says what is tested without the name or the line above it."""
    found = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in PYTHON
        if path.is_relative_to(ROOT / "tests")
        for docstring in source(path).strings
        if re.split(r"\W", docstring, maxsplit=1)[0] in TEST_OPENERS or FRAGMENT.match(docstring)
    ]
    assert found == []


def test_words_are_of_today() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in (*NODE, *DOCUMENTS)
        if path != ROOT / "STYLE.md"
        for word in OLD_WORDS.findall(path.read_text())
    ]
    assert found == []
