"""A page as a test reads it: its elements, its figures, its tables."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "br", "hr", "col", "link"})
APART = frozenset({"data", "time", "bdi", "code", "svg", "title", "style", "caption"})
"""Elements whose text has a test of its own."""


@dataclass
class Cell:
    """A cell of a table: the name of its column, its text and the values of its figures."""

    label: str
    text: str = ""
    values: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """Reads a page into tags, tables and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.figures: list[tuple[str, str]] = []
        self.tables: dict[str, list[list[Cell]]] = {}
        self.prose: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._table = ""
        self.feed(text)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        named = dict(attrs)
        if tag not in VOID:
            self._open.append((tag, named))
        if tag == "table":
            self._table = str(named["id"]).removesuffix("-table")
            self.tables[self._table] = []
        elif tag == "tr" and self._is_in("tbody"):
            self.tables[self._table].append([])
        elif tag == "td":
            self.tables[self._table][-1].append(Cell(str(named["data-label"])))
        elif tag == "data":
            self.figures.append((str(named["value"]), ""))
            if self._is_in("td"):
                self.tables[self._table][-1][-1].values.append(str(named["value"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "data":
            value, text = self.figures[-1]
            self.figures[-1] = (value, text + data)
        if self._is_in("td") and not self._is_in("svg"):
            self.tables[self._table][-1][-1].text += data
        is_apart = any(tag in APART or attrs.get("aria-hidden") for tag, attrs in self._open)
        if data.strip() and not is_apart:
            self.prose.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def _is_in(self, tag: str) -> bool:
        return any(opened == tag for opened, _ in self._open)
