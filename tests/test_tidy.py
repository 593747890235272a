"""No linter looks at these: documents that tell the truth, files that stay small, nothing left lying about."""

import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from node.version import VERSION
from tests.kit.source import source

ROOT: Final = Path(__file__).resolve().parent.parent

SOURCE_ROOTS: Final = ("node", "cluster", "spark_ops", "bench", "tests")

LINES_MAX: Final = 600
LONG_FILES: Final[dict[str, str]] = {}
"""Files under node/, cluster/ and spark_ops/ that may be longer, with the reason."""

FUNCTION_LINES_MAX: Final = 70
LONG_FUNCTIONS: Final = {
    "node/amqp/reader.py: _publishes": "the hottest loop: a call for a part would cost as much as the part",
}
"""Functions under node/, cluster/ and spark_ops/ that may be longer, with the reason."""

GENERATED: Final = "_pb2.py"
"""The names of files that `protoc` made end so; tests/test_proto_fresh.py holds them against proto/."""

CHANGE_KINDS: Final = frozenset({"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"})

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`([^`]+)`")
_PATH: Final = re.compile(rf"(?:{'|'.join(SOURCE_ROOTS)}|docs)/[\w./-]*")
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LIMITS: Final = re.compile(r"((?:`_?[A-Z][A-Z\d_]+`(?:, )?)+) \(((?:node|cluster|spark_ops)/[\w./]+)")
"""Constants in docs/limits.md, and the file or folder that is said to have them."""
_SET: Final = re.compile(r"^[ \t]*(_?[A-Z][A-Z\d_]+)(?:: [\w\[\], ]+)? = ", re.MULTILINE)
_MAKE: Final = re.compile(r"\bmake ((?:[a-z]+(?:-[a-z]+)*\b *)+)")
_TARGET: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def _files(suffix: str) -> Iterator[Path]:
    yield from sorted(ROOT.glob(f"*{suffix}"))
    for folder in (*SOURCE_ROOTS, "docs"):
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            if not path.name.endswith(GENERATED):
                yield path


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


DOCUMENTS: Final = list(_files(".md"))
PYTHON: Final = list(_files(".py"))
NODE: Final = [path for path in PYTHON if _name(path).startswith(("node/", "cluster/", "spark_ops/"))]


def _anchors(document: Path) -> set[str]:
    """The fragments by which headings are reached, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _constants(path: Path) -> frozenset[str]:
    """Return the constants that a file sets."""
    return frozenset(_SET.findall(path.read_text()))


# --- documents ---


def test_links_lead_somewhere() -> None:
    """Files and headings that a document links to exist."""
    broken = []
    for document in DOCUMENTS:
        for link in _LINK.findall(_FENCE.sub("", document.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, fragment = link.partition("#")
            target = (document.parent / place).resolve() if place else document
            if not target.exists() or (fragment and fragment not in _anchors(target)):
                broken.append(f"{_name(document)}: {link}")
    assert broken == []


def test_paths_that_are_named_exist() -> None:
    """`node/queue/queue.py` in a document is a file."""
    missing = []
    for document in DOCUMENTS:
        for code in _CODE.findall(_FENCE.sub("", document.read_text())):
            if _PATH.fullmatch(code) and not (ROOT / code).exists():
                missing.append(f"{_name(document)}: {code}")
    assert missing == []


def test_limits_are_where_the_document_says() -> None:
    """Each constant that docs/limits.md names is set in the file, or in the folder, that stands behind it."""
    stale = []
    node = {_name(path): path for path in NODE}
    rows = _LIMITS.findall((ROOT / "docs" / "limits.md").read_text())
    assert rows
    for names, place in rows:
        folder = f"{place.rstrip('/')}/"
        files = [path for name, path in node.items() if name == place or name.startswith(folder)]
        known = set[str]().union(*map(_constants, files))
        stale += [f"{name} ({place})" for name in _CODE.findall(names) if name not in known]
    assert stale == []


def test_commands_are_targets() -> None:
    """Each `make …` that a document shows exists, and CONTRIBUTING.md has each target."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(_TARGET.findall(makefile))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets
    shown: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        text = document.read_text()
        pieces = [*_FENCE.findall(text), *_CODE.findall(_FENCE.sub("", text))]
        words = {word for piece in pieces for run in _MAKE.findall(piece) for word in run.split()}
        assert words <= targets, f"{_name(document)}: {words - targets}"
        shown[_name(document)] = words
    assert shown["CONTRIBUTING.md"] == targets


def test_changelog() -> None:
    """Keep a Changelog: versions from the newest, with a date or unreleased, and the six kinds of change."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    versions = [line for line in lines if line.startswith("## ")]
    form = re.compile(r"## \[(\d+)\.(\d+)\.(\d+)\] - (?:unreleased|\d{4}-\d\d-\d\d)")
    found = [form.fullmatch(line) for line in versions]
    assert all(found), versions
    numbers = [tuple(map(int, match.groups())) for match in found if match]
    assert numbers == sorted(set(numbers), reverse=True)
    assert ".".join(map(str, numbers[0])) == VERSION
    assert all("unreleased" not in line for line in versions[1:])
    assert {line[4:] for line in lines if line.startswith("### ")} <= CHANGE_KINDS


def test_the_licence_is_the_one_that_is_announced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()


# --- source ---


def test_nothing_is_marked_as_unfinished() -> None:
    """Work that is left to do is an issue, not a mark in a file."""
    marks = re.compile(
        "|".join(rf"\b{first}{rest}\b" for first, rest in (("TO", "DO"), ("FIX", "ME"), ("XX", "X")))
    )
    found = []
    for path in (*PYTHON, *DOCUMENTS, ROOT / "Makefile", ROOT / "pyproject.toml"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if marks.search(line):
                found.append(f"{_name(path)}:{number}: {line.strip()}")
    assert found == []


def test_nothing_is_generated() -> None:
    """No file is generated but by `protoc`, whose files have a test that they are fresh."""
    mark = "DO NOT " + "EDIT"
    assert [_name(path) for path in PYTHON if mark in path.read_text().upper()] == []


def test_files_are_small() -> None:
    """One noun a file, at most 600 lines; what is longer stands in the list, and nothing else does."""
    counts = {_name(path): len(path.read_text().splitlines()) for path in NODE}
    assert {name for name, count in counts.items() if count > LINES_MAX} == set(LONG_FILES)


def test_functions_fit_a_screen() -> None:
    """A function of the node has at most 70 lines; what is longer stands in the list, and nothing else does."""
    long = {
        f"{_name(path)}: {name}"
        for path in NODE
        for name, lines in source(path).functions
        if lines > FUNCTION_LINES_MAX
    }
    assert long == set(LONG_FUNCTIONS)


def test_modules_say_what_they_are() -> None:
    """Every file with something in it opens with what it is."""
    found = {_name(path): source(path) for path in PYTHON}
    assert [name for name, each in found.items() if each.has_code and not each.docstring] == []


def test_scripts_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
