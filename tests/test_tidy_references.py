"""Citations of sections lead somewhere: `NAME §N.M` is section N.M of docs/reference/NAME.md.

A section is a heading that begins with its number, or rule M of a numbered list or table in section N. The name of
a page stands directly in front of the mark, and holds for other marks in the same part of a sentence. Any other mark
belongs to a page that the head of its file names: the docstring of a module, the first lines of a document. Sections of
documents that others have published, such as the AMQP specification, are not looked up.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.kit.source import source
from tests.test_tidy import GENERATED, ROOT, SOURCE_ROOTS

REFERENCE: Final = ROOT / "docs" / "reference"
PAGES: Final = {path.stem: path for path in sorted(REFERENCE.glob("*.md")) if path.stem != "README"}

FOLDERS: Final = (*SOURCE_ROOTS, "docs", "examples", "deploy", "proto")
SUFFIXES: Final = frozenset({".py", ".md", ".proto"})
HEAD_LINES: Final = 15
"""The head of a file without a docstring."""

PROSE: Final = frozenset(
    {"and", "as", "by", "for", "from", "in", "is", "of", "or", "see", "to", "what", "with"}
)
"""Words that may stand in front of a mark without being the name of a document."""

_NUMBER: Final = r"\d+(?:\.\d+)*[a-z]?(?![a-z\d])"
_MARKS: Final = re.compile(rf"§§? ?{_NUMBER}(?:(?:,|,? and|,? or| to|[-–/])\s?§ ?{_NUMBER}|[-–]{_NUMBER})*")
"""One mark, or several that share the name in front of the first: `§1.2, §1.3`, `§2.4-§2.6`, `§6.1-3`."""
_NAME: Final = re.compile(r"([A-Za-z][\w-]*(?:\.md)?)[`'\"]?(\s)$")
_PUBLISHED: Final = re.compile(
    r"(?:AMQP 0-9-1(?: specification| errata)?|\bMQTT (?:3\.1(?:\.1)?(?: and 5\.0)?|5\.0)|\bRFC \d+|\bRaft(?: paper)?"
    r"|\bthesis),?\s$"
)
_PART_END: Final = re.compile(r"[.:;]\s|[\"`]{3}|\n")
"""The part of a sentence in which a name holds ends here."""
_HEADING: Final = re.compile(rf"^#+ ({_NUMBER})\.? ", re.MULTILINE)
_RULE: Final = re.compile(r"^(?:(\d+)\. |\| (\d+) \||\*\*(\d+(?:\.\d+)*)\.?\*\*)", re.MULTILINE)
_BREAK: Final = re.compile(r"\s*\n[ \t]*(?:(?:#|//)[ \t]*)?")


@dataclass(frozen=True, slots=True)
class Citation:
    """One or more sections, and the document whose they are.   name: empty, if the file's head says it."""

    name: str
    sections: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.name, *(f"§{section}" for section in self.sections))).strip()


def sections_of(text: str) -> frozenset[str]:
    """Return the numbers of the sections and rules of a page."""
    found: set[str] = set()
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        section = heading[1]
        found.add(section)
        body = text[heading.end() : following.start() if following is not None else None]
        for rule in _RULE.finditer(body):
            number = rule[1] or rule[2] or rule[3]
            found.add(number if "." in number else f"{section}.{number}")
    return frozenset(found)


def citations(text: str) -> Iterator[Citation]:
    """Find the citations of published pages in a text, and the names of documents that are none."""
    flat = _BREAK.sub("\n", text)
    last, end = "", 0
    for marks in _MARKS.finditer(flat):
        before = flat[max(end, marks.start() - 80) : marks.start()]
        if end and _PART_END.search(flat, end, marks.start()) is not None:
            last = ""
        end = marks.end()
        if _PUBLISHED.search(before):
            last = ""
            continue
        last = _name_in(before) or last
        yield Citation(last, tuple(_numbers(marks[0])))


def _name_in(before: str) -> str:
    """Return the name of a document at the end of a text.

    A name at the end of a line counts only if it is a page's: before a comment there may be anything.
    """
    word = _NAME.search(before)
    if word is None or word[1].lower() in PROSE:
        return ""
    is_page = word[1].removesuffix(".md") in PAGES
    return word[1] if is_page or word[2] == " " else ""


def _numbers(marks: str) -> Iterator[str]:
    last = ""
    for dash, number in re.findall(rf"([-–]?)\s?§* ?({_NUMBER})", marks):
        is_short = dash and "." in last and "." not in number
        last = f"{last.rpartition('.')[0]}.{number}" if is_short else number
        yield last


def head_of(path: Path, text: str) -> str:
    """Return the part of a file that says which page a mark without a name belongs to."""
    if path.suffix == ".py":
        return source(path).docstring or ""
    return "\n".join(text.splitlines()[:HEAD_LINES])


def pages_named(head: str, names: frozenset[str]) -> set[str]:
    """Return which of the pages a head names: as `NAME §…`, as a file, or in `sections of NAME`."""
    flat = _BREAK.sub(" ", head)
    return {
        name for name in names if re.search(rf"(?<![\w-]){name}(?: §|\.md\b)|\bsections of {name}\b", flat)
    }


@cache
def _sections(name: str) -> frozenset[str]:
    return sections_of(PAGES[name].read_text())


def _problem(citation: Citation, head: set[str]) -> str | None:
    if citation.name:
        if citation.name not in PAGES:
            return f"{citation}: there is no docs/reference/{citation.name}.md"
        names = {citation.name}
    elif not head:
        return f"{citation}: the head of the file names no page"
    else:
        names = head
    known = frozenset[str]().union(*map(_sections, names))
    missing = [section for section in citation.sections if section not in known]
    return f"{citation}: no section {', '.join(missing)} in {', '.join(sorted(names))}" if missing else None


def problems(path: Path) -> list[str]:
    """Return what is wrong with the citations of a file."""
    text = path.read_text()
    if "§" not in text or path == Path(__file__):
        return []
    if path.parent == REFERENCE and path.stem in PAGES:
        head = {path.stem}
    else:
        head = pages_named(head_of(path, text), PAGES.keys())
    return [found for citation in citations(text) if (found := _problem(citation, head)) is not None]


def _files() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and not path.name.endswith(GENERATED):
                yield path


def test_citations_lead_somewhere() -> None:
    found = [f"{path.relative_to(ROOT)}: {wrong}" for path in _files() for wrong in problems(path)]
    assert not found, "\n".join(found)


def test_the_index_names_each_page() -> None:
    named = set(re.findall(r"\]\(([a-z-]+)\.md\)", (REFERENCE / "README.md").read_text()))
    assert named >= PAGES.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Source: amqp-behaviour §4.9.", ["amqp-behaviour §4.9"]),
        ("amqp-behaviour\n# §1.3, §1.7; ring §1c", ["amqp-behaviour §1.3 §1.7", "ring §1c"]),
        ("the rules of §6.6-§6.8; and §7 to §9", ["§6.6 §6.8", "§7 §9"]),
        ("spark §6.7-10, `management.md` §2", ["spark §6.7 §6.10", "management.md §2"]),
        ("(§4.10: 2 of 3)", ["§4.10"]),
        ("reliability §4.4 rule 2, §4.7 S18; §2.2", ["reliability §4.4", "reliability §4.7", "§2.2"]),
        ("amqp-behaviour\n§1.2; return None\n    # §1.3", ["amqp-behaviour §1.2", "§1.3"]),
        ("AMQP 0-9-1 §2.3, §4.2; Ongaro's thesis §9.6; RFC 5280 §4.1", []),
        ("architecture §2.2, nowhere §3", ["architecture §2.2", "nowhere §3"]),
    ],
)
def test_what_a_citation_is(text: str, found: list[str]) -> None:
    assert [str(citation) for citation in citations(text)] == found


def test_what_a_section_is() -> None:
    page = "# T\n## 1. A\n### 1.1 B\n1. x\n12. y\n### 1c C\n| 3 | z |\n## 2 D\n**2.5** w\n"
    assert sections_of(page) == {"1", "1.1", "1.1.1", "1.1.12", "1c", "1c.3", "2", "2.5"}


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    """Missing sections, missing pages and marks of no page are each found."""
    path = tmp_path / "bad.py"
    path.write_text('"""Source: amqp-behaviour §4.1, §4.99."""\n# §0.1, §0.99; architecture §1\n')
    assert problems(path) == [
        "amqp-behaviour §4.1 §4.99: no section 4.99 in amqp-behaviour",
        "§0.1 §0.99: no section 0.99 in amqp-behaviour",
        "architecture §1: there is no docs/reference/architecture.md",
    ]
    other = tmp_path / "other.py"
    other.write_text('"""A module."""\n# as §4.1 says\n')
    assert problems(other) == ["§4.1: the head of the file names no page"]
