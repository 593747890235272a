"""`fluffle ctl` prints the outcome of a command with one of RabbitMQ's formatters.

An outcome is one of four kinds; each formatter prints or refuses each of them. RabbitMQ's tables use Erlang syntax
for lists. Control characters in names are spelt out in text, where RabbitMQ prints them: a name must not be able
to move the cursor of the terminal. Source: management §3.1, §3.4, and RabbitMQ 3.10.8's output.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"


class Done(NamedTuple):
    """The outcome of a command that has nothing to print."""


class Message(NamedTuple):
    """The outcome of a command that prints one sentence."""

    text: str


class Report(NamedTuple):
    """The outcome that is an object, with its text."""

    value: Mapping[str, Any]
    text: str
    json_text: str = ""
    """The object as JSON, where its keys must not be sorted."""
    is_blank: bool = False
    """True if an empty text prints nothing at all, not even a line."""


class Table(NamedTuple):
    """The outcome that has rows with the same columns."""

    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    has_blank: bool = False
    """True if the text has a blank line in the place of no rows."""
    has_header: bool = True
    """True if the text has the names of the columns."""
    are_maps: bool = False
    """True if rows are maps as Erlang terms, else lists of pairs."""


class Names(list[str]):
    """A value of a table that prints as `[a, b]`."""


class Atom(str):
    """A value that is an Erlang atom, in formats that distinguish it."""

    __slots__ = ()


class Tuple(list[Any]):
    """A value of a table that prints as `{0,9,1}`; in JSON a list."""


class Address(str):
    """An IP address, which is a list of its numbers in RabbitMQ's JSON."""

    __slots__ = ()

    @property
    def numbers(self) -> list[int]:
        """The parts of the address; empty if the text is none."""
        import ipaddress

        try:
            found = ipaddress.ip_address(self)
        except ValueError:
            return []
        if found.version == 4:
            return list(found.packed)
        return [int.from_bytes(found.packed[at : at + 2], "big") for at in range(0, 16, 2)]


class Arguments(dict[str, Any]):
    """A table of AMQP, whose types are shown in JSON and Erlang terms."""


class Pairs(dict[str, Any]):
    """A value of a table that prints as `[{name, value}, …]`, both atoms."""


class Readable(dict[str, Any]):
    """A value of a table that is an object, with its text."""

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self.text = text


Outcome = Done | Message | Report | Table


class NotFormattable(Exception):
    """The formatter can print lists only."""


class Options(NamedTuple):
    """The formatters' parameters besides the outcome."""

    node: str
    has_header: bool = True


def render(outcome: Outcome, formatter: str, options: Options) -> str:
    """Return the text for standard output, each line ended. Raises: KeyError without such a formatter,
    NotFormattable.
    """
    return FORMATTERS[formatter](outcome, options)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


# --- text ---


def _table(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Table):
        rows = [[printable(cell(row.get(name))) for name in outcome.columns] for row in outcome.rows]
        has_header = options.has_header and outcome.has_header
        header = [list(outcome.columns)] if has_header and rows else []
        if not rows and outcome.has_blank:
            return "\n"
        return _lines(*("\t".join(row) for row in header + rows))
    if isinstance(outcome, Done) or (isinstance(outcome, Report) and outcome.is_blank):
        return ""
    return _lines(outcome.text)


def _pretty_table(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Done):
        return ""
    if isinstance(outcome, Table):
        columns = list(outcome.columns)
        cells = [[printable(cell(row.get(name))) for name in columns] for row in outcome.rows]
        if not cells:
            return ""
    else:
        columns = ["output"]
        cells = [[line] for line in outcome.text.replace(BOLD, "").replace(PLAIN, "").split("\n")]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def row(texts: Sequence[str], before: str = "", after: str = "") -> str:
        padded = (
            f" {before}{text}{after}{' ' * (width - len(text))} "
            for text, width in zip(texts, widths, strict=True)
        )
        return "│" + "│".join(padded) + "│"

    between = [rule("├", "┼", "┤")] if isinstance(outcome, Table) else []
    body: list[str] = []
    for texts in cells:
        body += [*(between if body else ()), row(texts)]
    head = [row(columns, BOLD, PLAIN), rule("├", "┼", "┤")] if options.has_header else []
    return _lines(rule("┌", "┬", "┐"), *head, *body, rule("└", "┴", "┘"))


def _csv(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Done):
        return ""
    if isinstance(outcome, Report) and all(not isinstance(v, (dict, list)) for v in outcome.value.values()):
        outcome = Table(tuple(outcome.value), [outcome.value])
    if not isinstance(outcome, Table):
        raise NotFormattable("csv")
    rows = [[cell(row.get(name)) for name in outcome.columns] for row in outcome.rows]
    header = [list(outcome.columns)] if options.has_header and rows else []
    return _lines(*(",".join('"' + text.replace('"', '""') + '"' for text in row) for row in header + rows))


def _string(outcome: Outcome, options: Options) -> str:
    if not isinstance(outcome, Table):
        return _table(outcome, options)
    rows = (
        ", ".join(f"{name}: {_inspect(row.get(name))}" for name in outcome.columns) for row in outcome.rows
    )
    return _lines(*(f"[{row}]" for row in rows))


def _inspect(value: object) -> str:
    return "nil" if value is None else erlang(value) if isinstance(value, (dict, list)) else _dumps(value)


def printable(text: str) -> str:
    """Return the text with control characters spelt out."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def cell(value: object) -> str:
    """Return the text of a value in a table."""
    if value is None:
        return ""
    if isinstance(value, Names):
        return f"[{', '.join(value)}]"
    if isinstance(value, Readable):
        return value.text
    if isinstance(value, Tuple):
        return "{" + ",".join(map(cell, value)) + "}"
    if isinstance(value, Pairs):
        return "[" + ", ".join(f"{{{atom(name)}, {atom(item)}}}" for name, item in value.items()) + "]"
    return value if isinstance(value, str) else erlang(value)


# --- JSON ---


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compact(value: Any) -> str:
    """Return JSON on one line, with the names of each object sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _json(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Table) and outcome.has_blank and not outcome.rows:
        return "[]\n"
    if isinstance(outcome, Table):
        rows = [_dumps(_json_row(row, outcome.columns)) for row in outcome.rows]
        return _lines("[", *(f",{row}" if number else row for number, row in enumerate(rows)), "]")
    if isinstance(outcome, Message):
        return _lines(_dumps({"message": outcome.text}))
    if isinstance(outcome, Report):
        is_nothing = outcome.is_blank and not outcome.value
        return "" if is_nothing else _lines(outcome.json_text or compact(outcome.value))
    return _lines(_dumps({"node": options.node, "result": "ok"}))


def _json_stream(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Table):
        return _lines(*(_dumps(_json_row(row, outcome.columns)) + "\n" for row in outcome.rows))
    return _json(outcome, options)


def _json_row(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: _json_value(row.get(name), name) for name in columns}


def _json_value(value: Any, column: str) -> Any:
    if isinstance(value, Arguments) or column == "arguments":
        return typed(value)
    if isinstance(value, Address):
        return value.numbers or value
    return value


def typed(arguments: Mapping[str, Any] | None) -> list[list[Any]]:
    """Return arguments as RabbitMQ's JSON has them in lists: name, type, value."""
    return [[name, *_typed_value(value)] for name, value in (arguments or {}).items()]


def _typed_value(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long", value
    if isinstance(value, float):
        return "double", value
    if isinstance(value, list):
        return "array", [list(_typed_value(item)) for item in value]
    if isinstance(value, dict):
        return "table", typed(value)
    return ("void", "undefined") if value is None else ("longstr", value)


# --- Erlang ---


def erlang(value: object) -> str:
    """Return a value as RabbitMQ's tools show it: `[{"x-max-length",5}]`."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{erlang(name)},{erlang(item)}}}" for name, item in value.items()) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(erlang, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _term(value: object) -> str:
    """Return a value as an Erlang term: texts are binaries."""
    if isinstance(value, Atom):
        return atom(value)
    if isinstance(value, Names):
        return "[" + ",".join(map(atom, value)) + "]"
    if isinstance(value, Address):
        return "{" + ",".join(map(str, value.numbers)) + "}" if value.numbers else _term(str(value))
    if isinstance(value, Tuple):
        return "{" + ",".join(map(_term, value)) + "}"
    if isinstance(value, Pairs):
        return "[" + ",".join(f"{{{atom(name)},{atom(item)}}}" for name, item in value.items()) + "]"
    if isinstance(value, Arguments):
        return "[" + ",".join(map(_typed_term, typed(value))) + "]"
    if isinstance(value, Mapping):
        return "#{" + ",".join(f"{_term(name)} => {_term(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_term, value)) + "]"
    return (
        f"<<{erlang(printable(value))}/utf8>>"
        if isinstance(value, str) and not value.isascii()
        else (f"<<{erlang(printable(value))}>>" if isinstance(value, str) else erlang(value))
    )


def _typed_term(parts: Sequence[Any]) -> str:
    """Return an argument (name, type, value) as an Erlang term."""
    *names, type_, value = parts
    inner = value if type_ in ("table", "array") else None
    shown = _term(value) if inner is None else "[" + ",".join(map(_typed_term, inner)) + "]"
    return "{" + ",".join([*map(_term, names), type_, shown]) + "}"


def atom(text: str) -> str:
    """Return an atom as Erlang writes it."""
    if text and text.isascii() and text[0].islower() and text.replace("_", "a").replace("@", "a").isalnum():
        return text
    return "'" + printable(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def erlang_pretty(value: Mapping[str, Any], indent: int = 0) -> str:
    """Return an object as `environment` shows it: pairs, a line for each that holds no others."""
    pairs = []
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            below = erlang_pretty(item, indent + 5)
            pairs.append(f"{{{atom(name)},\n{' ' * (indent + 5)}{below}}}")
        else:
            pairs.append(f"{{{atom(name)},{_term(item) if not isinstance(item, Mapping) else '[]'}}}")
    return "[" + f",\n{' ' * (indent + 1)}".join(pairs) + "]"


def _erlang(outcome: Outcome, options: Options) -> str:
    if isinstance(outcome, Done):
        return ""
    if isinstance(outcome, Message):
        return _lines(_term(outcome.text))
    if isinstance(outcome, Report):
        return _lines(_term(dict(sorted(outcome.value.items()))))
    if outcome.are_maps:
        maps = (_term({Atom(name): row.get(name) for name in outcome.columns}) for row in outcome.rows)
        return _lines("[" + ",\n ".join(maps).replace('<<"">>', "<<>>") + "]")
    rows = (
        "[" + ",".join(f"{{{name},{_term(row.get(name))}}}" for name in outcome.columns) + "]"
        for row in outcome.rows
    )
    return _lines("[" + ",\n ".join(rows) + "]")


FORMATTERS: Final[Mapping[str, Callable[[Outcome, Options], str]]] = {
    "table": _table,
    "pretty_table": _pretty_table,
    "json": _json,
    "json_stream": _json_stream,
    "csv": _csv,
    "erlang": _erlang,
    "string": _string,
}
WITHOUT_BANNER: Final = frozenset({"json", "json_stream", "csv"})
"""Formatters whose output programs read: nothing may stand before it."""
