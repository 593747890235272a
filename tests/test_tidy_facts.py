"""Facts that documents quote of the code: constants, limits, the times of the failure detector, headings of pages.

The values of limits are read from the source without importing it, so that no library is needed. A page that quotes a
number which is not in the code fails here, and so does a sentence about leases that no pattern below knows.
"""

import ast
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from cluster.membership.options import MembershipOptions
from cluster.times import LEASE_HEARTBEATS, LEASE_HEARTBEATS_MIN, RATE_ERROR
from cluster.transport.interface import LinkOptions
from node.clustering.metadata import options as raft_options
from node.config.config import ClusterOptions, Config, FileLog
from node.config.keys import KEYS
from tests.test_tidy import NODE, PYTHON, ROOT

PAGES: Final = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
LIMITS: Final = ROOT / "docs" / "limits.md"

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PLACE: Final = r"`?(?:node|cluster|spark_ops|bench|tests|deploy)/[\w./-]*[\w/]`?"
_NAMES: Final = r"(?:`_?[A-Za-z][A-Za-z\d_]+`(?:, | and )?)+"
_NAMED: Final = re.compile(rf"({_NAMES})(?: \(| in |, )({_PLACE}(?:(?:, | and ){_PLACE})*)")
"""Names in backticks and the files, or the folders, beside them: "`A`, `B` (node/x.py)", "`A` in `node/x.py`"."""


def _text(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _units(page: Path) -> Iterator[str]:
    """Yield the sentences of a page and the cells of its tables, with single spaces."""
    for block in re.split(r"\n\s*\n|\n(?=[|#*]|\d+\. |- )", _text(page)):
        row = " ".join(block.split())
        yield from row.split(" | ") if row.startswith("|") else re.split(r"(?<=[.;:])\s+", row)


# --- values of the source ---

_OPERATIONS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.LShift: lambda a, b: a << b,
    ast.Pow: lambda a, b: a**b,
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _value(expression: ast.expr, path: Path) -> Any:
    """Return the value of a constant expression, whose names are constants of the file or imported by it.

    Raises: ValueError if it is anything else.
    """
    match expression:
        case ast.Constant():
            return expression.value
        case ast.BinOp():
            operation = _OPERATIONS[type(expression.op)]
            return operation(_value(expression.left, path), _value(expression.right, path))
        case ast.Tuple():
            return tuple(_value(each, path) for each in expression.elts)
        case ast.Dict():
            return tuple(_value(each, path) for each in expression.values)
        case ast.Name():
            return _named_value(expression.id, path)
    raise ValueError(f"{path}:{expression.lineno}: {ast.unparse(expression)} is no constant")


def _named_value(name: str, path: Path) -> Any:
    for statement in _tree(path).body:
        if isinstance(statement, ast.ImportFrom):
            for imported in statement.names:
                if (imported.asname or imported.name) == name:
                    module = ROOT / f"{(statement.module or '').replace('.', '/')}.py"
                    return _named_value(
                        imported.name, module if module.exists() else module.with_suffix("") / "__init__.py"
                    )
    (found,) = _assigned(name, path)
    return found


@cache
def _assignments(path: Path) -> dict[str, list[ast.expr]]:
    """Return what a file gives each name, in modules, classes and functions."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for statement in ast.walk(_tree(path)):
        if isinstance(statement, ast.AnnAssign):
            targets: list[ast.expr] = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and statement.value is not None:
                found[target.id].append(statement.value)
    return found


def _assigned(name: str, path: Path) -> list[Any]:
    """Return the constant values that a file gives a name."""
    found = []
    for expression in _assignments(path).get(name, ()):
        with suppress(ValueError):
            found.append(_value(expression, path))
    return found


def _files(places: str) -> list[Path]:
    """Return the files that the text beside a name means: a file, or all of a folder."""
    found = []
    for place in re.findall(_PLACE, places):
        path = ROOT / place.strip("`")
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


# --- constants that pages name ---

_CONSTANT: Final = re.compile(r"_?[A-Z][A-Z\d]*(?:_[A-Z\d]+)+")
FOREIGN: Final = "RABBITMQ_"
"""Variables of RabbitMQ begin so. Those that mean nothing here are named too; tests/node/config has all of them."""


def test_constants_that_are_named_exist() -> None:
    """`ROUTES_MAX` in a page is set in the source, or is a variable of the environment that the source reads."""
    code = "\n".join(path.read_text() for path in PYTHON if path.name != Path(__file__).name)
    others = (ROOT / "Makefile", *(path for path in (ROOT / "deploy").rglob("*") if path.is_file()))
    known = {
        *re.findall(r"^\s*(_?[A-Z][A-Z\d_]+)(?:: [^=\n]+)? = ", code, re.MULTILINE),
        *re.findall(r"[\"'.](_?[A-Z][A-Z\d_]+)\b", code),
        *(
            name
            for line in re.findall(r"^ *from .* import (.*)$", code, re.MULTILINE)
            for name in line.split(", ")
        ),
        *(name for path in others for name in re.findall(r"\w+", path.read_text(errors="replace"))),
    }
    missing = []
    for page in PAGES:
        text = _text(page)
        if page.name == "glossary.md":  # its last column has names that are proposed
            text = re.sub(r"\|[^|\n]*\|$", "|", text, flags=re.MULTILINE)
        names = {name for name in re.findall(r"`([^`\n]+)`", text) if _CONSTANT.fullmatch(name)}
        missing += [
            f"{_name(page)}: {name}" for name in sorted(names - known) if not name.startswith(FOREIGN)
        ]
    assert missing == []


def test_constants_are_in_the_files_that_stand_beside_them() -> None:
    """`ROUTES_MAX` in `node/client/publishing.py` is set there; of names with a folder, in a file of it."""
    missing = []
    count = 0
    for page in PAGES:
        for names, places in _NAMED.findall(_text(page)):
            for name in re.findall(r"`([^`]+)`", names):
                if name.upper() != name:
                    continue
                count += 1
                if not any(name in _assignments(path) for path in _files(places)):
                    missing.append(f"{_name(page)}: {name} in {places}")
    assert count > 200
    assert missing == []


# --- docs/limits.md ---


class Quantity(NamedTuple):
    """A number of a text.   values: what it may mean: the number itself, and with its unit."""

    text: str
    values: frozenset[float]


UNITS: Final = {
    "bytes": 1,
    "octets": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "KB": 1 << 10,
    "kB": 1000,
    "MB": 10**6,
    "GB": 10**9,
    "ms": 1e-3,
    "µs": 1e-6,
    "s": 1,
    "minute": 60,
    "minutes": 60,
    "days": 86400,
    "million": 10**6,
    "%": 0.01,
}
SPOKEN: Final = {
    "an hour": 3600.0,
    "a minute": 60.0,
    "a second": 1.0,
    "every second": 1.0,
    "every minute": 60.0,
}
_QUANTITY: Final = re.compile(
    rf"(some )?(?<![\w.²`])(\d[\d,]*(?:\.\d+)?)(³²)?(?: ?({'|'.join(UNITS)}))?(?!\w)"
)


def _quantities(text: str, *, exact: bool = False) -> list[Quantity]:
    """Return the numbers of a text.   exact: without those after "some", which are estimates."""
    found = []
    for some, digits, power, unit in _QUANTITY.findall(text):
        if some and exact:
            continue
        number = float(digits.replace(",", "")) if not power else 2.0**32
        values = {number, number * UNITS[unit]} if unit else {number}
        found.append(Quantity(f"{digits} {unit}".strip(), frozenset(values)))
    for words, value in SPOKEN.items():
        if re.search(rf"\b{words}\b", text):
            found.append(Quantity(words, frozenset({value})))
    return found


def _meanings(name: str, value: Any) -> list[list[float]]:
    """Return what a row may say of a constant: for each number that it has to say the forms it may have."""
    if name in SEQUENCES:
        return [[float(each)] for each in SEQUENCES[name](value)]
    if name.endswith("_MS"):
        return [[value, value / 1000]]
    return [[float(value)]]


SEQUENCES: Final[dict[str, Callable[[Any], Iterable[float]]]] = {
    "GC_THRESHOLDS": lambda value: (value[0], value[0] * value[1]),
    "PAUSES_S": lambda value: (len(value), sum(value)),
    "ROLLUP_DAYS": lambda value: value,
}
"""Constants of several values, and the numbers that their rows say of them."""

DERIVED: Final = {
    "unfinished contents of one connection, all channels together": {"2"},  # times a key's value
    "reads of one socket in a turn": {"256 KB"},  # of uvloop
    "a regular expression of a policy, permission or filter": {"2", "255 octets"},  # factors of the constant
    "memory for the numbers of a copy's messages": {"512 bytes"},  # a bit for each number
    "wrong logins over HTTP from one network (IPv6: /64)": {"100"},  # a product of two of its constants
    "how long a lock lasts unless it is renewed": {"1 s"},  # a check in the handler
}
"""Numbers of rows, by the row's first cell, that no constant of the row has."""


class LimitRow(NamedTuple):
    """A row of docs/limits.md: four cells."""

    what: str
    limit: str
    where: str
    at_it: str


def _limit_rows() -> list[LimitRow]:
    rows = [line.strip("|").split("|") for line in LIMITS.read_text().splitlines() if line.startswith("| ")]
    return [
        LimitRow(*(cell.strip() for cell in row)) for row in rows[1:] if len(row) == len(LimitRow._fields)
    ]


def _constants(text: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the names in a cell that have a file beside them, with all values they have there."""
    for names, places in _NAMED.findall(text):
        for name in re.findall(r"`([^`]+)`", names):
            yield name, [value for path in _files(places) for value in _assigned(name, path)]


def _is_said(forms: Iterable[float], quantities: Iterable[Quantity]) -> Quantity | None:
    return next(
        (
            quantity
            for quantity in quantities
            for form in forms
            if any(math.isclose(form, value, rel_tol=1e-9) for value in quantity.values)
        ),
        None,
    )


def test_limits_have_the_values_of_their_constants() -> None:
    """Each constant that a row names stands in it with its value: with the limits, or in the cell that names it."""
    wrong = []
    count = 0
    for row in _limit_rows():
        for cell, said in ((row.where, row.limit), (row.limit, row.limit), (row.at_it, row.at_it)):
            for name, values in _constants(cell):
                count += 1
                if not values:
                    wrong.append(f"{row.what}: {name} is nowhere")
                for value in values:
                    for forms in _meanings(name, value):
                        if _is_said(forms, _quantities(said)) is None:
                            wrong.append(f"{row.what}: {name} is {forms[0]:g}")
    assert count > 240
    assert wrong == []


def test_limits_say_nothing_else() -> None:
    """Each number of a limit that only constants set is the value of one of them, but for estimates ("some …")."""
    wrong = []
    for row in _limit_rows():
        if not row.where.startswith("fixed") or " key" in row.where or "policy" in row.where:
            continue
        known = [
            form
            for cell in (row.where, row.limit)
            for name, values in _constants(cell)
            for value in values
            for forms in _meanings(name, value)
            for form in forms
        ]
        for quantity in _quantities(row.limit, exact=True):
            if _is_said(known, [quantity]) is None and quantity.text not in DERIVED.get(row.what, ()):
                wrong.append(f"{row.what}: {quantity.text}")
    assert wrong == []


def test_constants_have_the_values_that_stand_behind_them() -> None:
    """`SHARE_S`, 2 ms in a page of docs/internals: a file of the nodes or of spark_ops gives the name that value."""
    wrong = []
    count = 0
    for page in PAGES:
        for name, said in re.findall(
            rf"`({_CONSTANT.pattern})`, (\d[\d.,]*(?: (?:{'|'.join(UNITS)}))?)", _text(page)
        ):
            count += 1
            values = [value for path in NODE for value in _assigned(name, path)]
            if _is_said([float(value) for value in values], _quantities(said)) is None:
                wrong.append(f"{_name(page)}: {name}, {said}")
    assert count > 4
    assert wrong == []


def test_derived_numbers_are_still_there() -> None:
    rows = {row.what: {quantity.text for quantity in _quantities(row.limit)} for row in _limit_rows()}
    assert {what: numbers for what, numbers in DERIVED.items() if not numbers <= rows.get(what, set())} == {}


def _default(field: str) -> Any:
    """Return a key's default: the value of a field of `Config`. None for what is made of several keys."""
    section, _, name = field.partition(".")
    if section == "file":
        return getattr(FileLog(""), name)
    for each in fields(Config):
        if each.name == section:
            held = each.default if each.default_factory is MISSING else each.default_factory()
            return getattr(held, name, None) if is_dataclass(held) else None
    return None


PATTERNED_KEYS: Final = {"proxy_protocol_sources.N", "management.sample_retention_policies.*"}
"""Keys with a part that anybody may choose; they have no default."""
COMBINED_KEYS: Final = {
    "vm_memory_high_watermark.*": lambda config: config["memory.watermark_relative"],
    "vm_memory_high_watermark_paging_ratio": lambda config: (
        config["memory.watermark_relative"] * config["memory.paging_ratio"]
    ),
    "disk_free_limit.*": lambda config: config["disk.free_limit_bytes"],
}
"""Keys whose row says something else than the default of the one key."""
UNSAID_KEYS: Final = {
    "tcp_listen_options.sndbuf",  # of the system's buffers
    "cluster_keepalive_interval",  # the row has what follows from it
}
"""Keys that rows name beside another limit."""


def test_limits_have_the_defaults_of_their_keys() -> None:
    """A row that names a key has the key's default among its limits; a default of 0 or none is `none`."""
    by_key = {key.pattern: key.field for key in KEYS}
    defaults = {field: _default(field) for field in by_key.values()}
    wrong, seen = [], set()
    for row in _limit_rows():
        for key in re.findall(r"`([a-z][\w.*N-]+)`", row.where.partition("key")[2].partition("; fixed")[0]):
            if key in PATTERNED_KEYS:
                continue
            if key not in by_key and key not in COMBINED_KEYS:
                wrong.append(f"{row.what}: there is no key {key}")
                continue
            seen.add(key)
            if key in UNSAID_KEYS:
                continue
            if key.endswith(".*") and "paging_ratio" in row.where:
                continue  # the row has the product of both
            value = COMBINED_KEYS[key](defaults) if key in COMBINED_KEYS else defaults[by_key[key]]
            if not value:
                if "none" not in row.limit:
                    wrong.append(f"{row.what}: {key} is none by default")
            elif _is_said([float(value)], _quantities(row.limit)) is None:
                wrong.append(f"{row.what}: {key} is {value:g}")
    assert len(seen) > 20
    assert seen >= UNSAID_KEYS | set(COMBINED_KEYS)
    assert wrong == []


# --- the failure detector ---

CLUSTER: Final = ClusterOptions()
LEASE_S: Final = CLUSTER.lease_s
MEMBERSHIP: Final = MembershipOptions(lease_s=LEASE_S, heartbeat_s=CLUSTER.heartbeat_s)
LINKS: Final = LinkOptions()
RAFT: Final = raft_options(LEASE_S)
DOWN_S: Final = math.ceil(MEMBERSHIP.expiry_s * 10) / 10
"""About how long a silent node counts as up, in tenths: the leader's wait and the agreement of a majority."""
PAUSE_LEASES: Final = _named_value("_PAUSE_LEASES", ROOT / "cluster" / "membership" / "membership.py")

WORDS: Final = {"four": 4.0, "six": 6.0, "sixteen": 16.0, "a tenth of a second": 0.1}

TIMES: Final = {
    "between two heartbeats of a node": [CLUSTER.heartbeat_s],
    "the lease: how long a node serves that has no contact with a majority": [LEASE_S],
    "from the last heartbeat of a silent node until the leader declares it down": [
        round(MEMBERSHIP.expiry_s, 2)
    ],
    "until a process that has ended counts as down": [LINKS.probe_after_s],
    "a pause after which the incarnation is over": [PAUSE_LEASES * LEASE_S],
    "how long two nodes may not reach each other before one of them is declared down": [MEMBERSHIP.parting_s],
    "until another node stands for election if the Raft leader is silent": [
        round(RAFT.election_min_s, 1),
        round(RAFT.election_max_s, 1),
    ],
}
"""The table of docs/clustering.md: what it has to say."""

_CLOCKS: Final = (
    r"(?: of it| more)?(?: for (?:the clocks|different clock rates|clocks of different rates))?(?: later)?"
)
QUOTES: Final = (
    # how long a node may serve
    (r"`cluster\.lease`(?: \(|, )([\d.]+) s\b", LEASE_S),
    (r"\b([\d.]+) s \(`cluster\.lease`\)", LEASE_S),
    (r"\blease of ([\d.]+) s\b", LEASE_S),
    (r"\b([\d.]+) s: it pauses", LEASE_S),
    (r"stops serving after ([\d.]+) s\b", LEASE_S),
    (r"in a minority still answers for ([\d.]+) s\b", LEASE_S),
    (r"\bit serves for ([\d.]+) s", LEASE_S),
    (r"`cluster\.lease`: (\d+) heartbeats", LEASE_HEARTBEATS),
    (r"\| (\d+) times `cluster_keepalive_interval` \|", LEASE_HEARTBEATS),
    (r"At least (\d+) times `cluster_keepalive_interval`", LEASE_HEARTBEATS_MIN),
    # when the others declare it down
    (r"\bdown (?:for the others )?after (?:\*\*)?about ([\d.]+) s\b", DOWN_S),
    (r"\bsilent after about ([\d.]+) s\b", DOWN_S),
    (r"a silent node counts as down \| [^|]+ \| after about ([\d.]+) s\b", DOWN_S),
    (r"\babout ([\d.]+) s in all", DOWN_S),
    (r"\babout ([\d.]+) s: it counts as down", DOWN_S),
    (r"a tenth of a second, or about ([\d.]+) s\b", DOWN_S),
    (r"\b([\d.]+) s until the node counts as down", DOWN_S),
    (rf"\b([\d.]+) %{_CLOCKS},? and [\d.]+ s", RATE_ERROR * 100),
    (rf"\b\d+ %{_CLOCKS},? and ([\d.]+) s", MEMBERSHIP.margin_s),
    (r"(?:noticed|declared down by proof) in (a tenth of a second|[\d.]+ s)\b", LINKS.probe_after_s),
    (r"refuses a connection (\d+) ms later", LINKS.probe_after_s * 1000),
    (r"the node counts as down: (a tenth of a second)", LINKS.probe_after_s),
    # heartbeats and pauses
    (r"signs of life every (\d+) ms", CLUSTER.heartbeat_s * 1000),
    (r"heartbeats? every (\d+) ms", CLUSTER.heartbeat_s * 1000),
    (r"heartbeats are ([\d.]+) s apart", CLUSTER.heartbeat_s),
    (r"(?:pause of|After) (\w+) leases", PAUSE_LEASES),
    (r"counts as up for ([\d.]+) s \(\w+ leases\)", PAUSE_LEASES * LEASE_S),
    (r"counts as up for [\d.]+ s \((\w+) leases\)", PAUSE_LEASES),
    (r"[Aa]fter ([\d.]+) s (?:the leader|it) declares one", MEMBERSHIP.parting_s),
    (r"[Aa]fter ([\d.]+) s one of the two nodes counts as down", MEMBERSHIP.parting_s),
    # Raft and links
    (r"heartbeat ([\d.]+) s, election", RAFT.heartbeat_s),
    (r"election ([\d.]+) to [\d.]+ s for a lease", round(RAFT.election_min_s, 1)),
    (r"election [\d.]+ to ([\d.]+) s for a lease", round(RAFT.election_max_s, 1)),
    (r"[Aa]fter ([\d.]+) s of silence the control connection is pinged", LINKS.keepalive_s),
    (r"is pinged \(a data connection after ([\d.]+) s\)", LINKS.data_keepalive_s),
    (r"; ([\d.]+) s without an answer ends the link", LINKS.ping_timeout_s),
)
"""Phrases of pages, each with one number, and what follows for it from the code."""

ABOUT: Final = re.compile(
    r"\bsilent\b|counts? as (?:up|down)|cluster\.lease|\bleases?\b|heartbeats are|declare[ds]? (?:\w+ )?down"
)
"""A sentence about the failure detector has one of these words."""

OTHER: Final = (
    "dropped after some 12 s, after 20 s if it is the last",  # mirrors
    "alarm `metadata_disk` after 10 s",
    "cut by HAProxy after 2 to 4 s; queues whose master was there pause for about 3 s",
    "no confirm for 4 to 5 s",  # measured
    "it steps down after a second",
    "it bears 2.75 s then, and a silent node is declared down after 4.54 s",  # with another interval: test_times.py
    "replaced within 2.5 s",  # about that
    "after 60 to 75 s",  # RabbitMQ
)
"""Other numbers of such sentences."""


def _number(text: str) -> float:
    return WORDS[text] if text in WORDS else float(text.removesuffix(" s"))


@pytest.mark.parametrize(("pattern", "wanted"), QUOTES)
def test_quoted_times_are_those_of_the_code(pattern: str, wanted: float) -> None:
    """Every page that has the phrase has the number that follows from the defaults; some page has it."""
    found = {
        (_name(page), number)
        for page in PAGES
        for number in re.findall(pattern, " ".join(_text(page).split()))
    }
    assert found
    assert {(page, number) for page, number in found if not math.isclose(_number(number), wanted)} == set()


def test_no_other_times_are_quoted() -> None:
    """A sentence about leases and silent nodes has no seconds but those of the patterns and of the list of others."""
    patterns = [*map(re.escape, OTHER), *(pattern for pattern, _ in QUOTES)]
    unknown = []
    for page in PAGES:
        for unit in _units(page):
            if not ABOUT.search(unit):
                continue
            known = [match.span() for pattern in patterns for match in re.finditer(pattern, unit)]
            for match in re.finditer(r"(?<![\w.])[\d.]+ ?m?s\b", unit):
                if not any(begin <= match.start() and match.end() <= end for begin, end in known):
                    unknown.append(f"{_name(page)}: {match[0]} in: {unit}")
    assert unknown == []


def test_the_table_of_times_follows_from_the_defaults() -> None:
    """docs/clustering.md is where these times stand; other pages quote it."""
    text = (ROOT / "docs" / "clustering.md").read_text().partition("### Times\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:2] == "| "
    ]
    found = {
        what: [float(each) for each in re.findall(r"\d+(?:\.\d+)?", value)] for what, value, _ in rows[1:]
    }
    assert found == {what: pytest.approx(values) for what, values in TIMES.items()}


def test_the_lease_has_one_default() -> None:
    """The lease is so many heartbeats, and the times of membership have no default of their own."""
    assert pytest.approx(CLUSTER.heartbeat_s * LEASE_HEARTBEATS) == LEASE_S
    without = {each.name for each in fields(MembershipOptions) if each.default is not each.default_factory}
    assert without == {"margin_s", "parting_s"}


# --- headings ---

_CITED: Final = re.compile(r'((?:docs/[\w/-]+|[A-Z]+)\.md), ((?:"[^"\n]+"(?:, | and )?)+)')
"""A page and headings of it, as docstrings cite them: docs/internals/disk.md, "Operations" and "Paging"."""


def test_headings_that_the_source_cites_exist() -> None:
    """A heading, or the bold line of a table in docs/limits.md."""
    missing = []
    count = 0
    for path in (*PYTHON, ROOT / "pyproject.toml"):
        for page, headings in _CITED.findall(re.sub(r"\s*\n[ #]*", " ", path.read_text())):
            text = _text(ROOT / page) if (ROOT / page).exists() else ""
            known = set(re.findall(r"^#+ (.+)$|^\| \*\*(.+?)\*\* \|", text, re.MULTILINE))
            for heading in re.findall(r'"([^"]+)"', headings):
                count += 1
                if not any(heading in names for names in known):
                    missing.append(f"{_name(path)}: {page}, {heading}")
    assert count > 50
    assert missing == []
