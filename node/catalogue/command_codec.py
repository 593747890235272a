"""Commands as JSON, for a log that people can read.

    {"command":"DeclareQueue","vhost":"/","name":"q","uid":"…","durable":true,…,"arguments":"","type":"classic"}

Every field is written, so that a default may change without a change in what old logs say. Read, a field with a
default may be missing: an older version did not know it. A command or key that this version does not know is an error
and never skipped: the change was confirmed to its submitter. How a field is written follows from its annotation:
tables become the base64 of their encoding, in which every type of field survives; an object that may be of several
classes names its class; all else is JSON as it is.
"""

import json
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, decode_table, encode_table
from node.catalogue import commands
from node.catalogue.commands import Command
from node.catalogue.records import Json, JsonObject

_NAME: Final = "command"
"""The key of the command's name; no field may have it."""

_KIND: Final = "kind"
"""The key of the class of an object within a command that may be of several; no field of these may have it."""


class CommandUnreadable(Exception):
    """A text is no command that this version knows; the message says what is wrong with it."""


class _Misfit(Exception):
    """A value does not fit the type of its field; the message says what would fit."""


Write: TypeAlias = Callable[[Any], Any]
"""Converts the value of a field to one that JSON can express."""

Read: TypeAlias = Callable[[Any], Any]
"""Converts a value from JSON to the value of a field. Raises _Misfit."""

_NoneType: Final = type(None)
_UnionType: Final = type(int | str)
_PLAIN: Final[dict[object, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    _NoneType: "null",
}
"""Types that are the same in JSON and in Python, with their names in error messages."""
_PLURALS: Final[dict[object, str]] = {str: "texts", int: "whole numbers"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The way in which objects of one class are written and read.

    known: the keys that may occur.   writes: converters of the fields that JSON cannot express as they are.
    defaults: for each field that may be missing, a function that makes its value.
    """

    cls: type[Any]
    names: tuple[str, ...]
    known: frozenset[str]
    writes: tuple[tuple[str, Write], ...]
    reads: tuple[tuple[str, Read], ...]
    defaults: Mapping[str, Callable[[], Any]]

    def write(self, value: Any) -> dict[str, Any]:
        """The fields of an object, by name."""
        data = {name: getattr(value, name) for name in self.names}
        for name, write in self.writes:
            data[name] = write(data[name])
        return data

    def read(self, data: Mapping[str, Any]) -> Any:
        """The object with these fields. Raises CommandUnreadable."""
        if not data.keys() <= self.known:
            unknown = ", ".join(sorted(data.keys() - self.known))
            raise CommandUnreadable(f"{self.cls.__name__} with the unknown field {unknown}")
        values = []
        for name, read in self.reads:
            if name in data:
                try:
                    values.append(read(data[name]))
                except _Misfit as misfit:
                    raise CommandUnreadable(
                        f"{self.cls.__name__}.{name} must be {misfit}, not {_shown(data[name])}"
                    ) from None
            elif name in self.defaults:
                values.append(self.defaults[name]())
            else:
                raise CommandUnreadable(f"{self.cls.__name__} without {name}")
        return self.cls(*values)


def encode_command(command: Command[Any]) -> bytes:
    """The command as one line of JSON, in UTF-8 (with surrogates where a name was not UTF-8)."""
    name = type(command).__name__
    text = _to_json({_NAME: name, **_PLANS[name].write(command)})
    return text.encode("utf-8", "surrogatepass")


def decode_command(text: bytes) -> Command[object]:
    """The command that `encode_command` wrote, here or in another version. Raises CommandUnreadable."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandUnreadable(f"no JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get(_NAME), str):
        raise CommandUnreadable("no command")
    plan = _PLANS.get(data[_NAME])
    if plan is None:
        raise CommandUnreadable(f"unknown command {data[_NAME]}")
    del data[_NAME]
    command: Command[object] = plan.read(data)
    return command


_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def _shown(value: object) -> str:
    """Return the start of a value that did not fit: enough to find it."""
    return json.dumps(value)[:60]


# --- from annotations to plans ----------------------------------------------------------------------------


def _plan(cls: type[Any]) -> _Plan:
    """The plan for a dataclass."""
    names = tuple(field.name for field in fields(cls))
    assert _NAME not in names, cls
    forms = [(field.name, *_form(field.type)) for field in fields(cls)]
    defaults: dict[str, Callable[[], Any]] = {}
    for field in fields(cls):
        if field.default is not MISSING:
            defaults[field.name] = partial(_same, field.default)
        elif field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory
    return _Plan(
        cls,
        names,
        frozenset(names),
        tuple((name, write) for name, write, _ in forms if write is not None),
        tuple((name, read) for name, _, read in forms),
        defaults,
    )


def _form(annotation: Any) -> tuple[Write | None, Read]:
    """Return the writer (None: JSON takes the value as it is) and the reader for fields of this annotation."""
    if annotation == Json:
        return None, _same
    if annotation == JsonObject:
        return dict, _exactly("an object", dict)
    if annotation == Table:
        return _write_table, _read_table
    if isinstance(annotation, type) and is_dataclass(annotation):
        plan = _plan(annotation)
        return plan.write, partial(_read_inner, plan)
    if get_origin(annotation) is Literal:
        return None, _one_of(get_args(annotation))
    if get_origin(annotation) is tuple:
        return _tuple(get_args(annotation))
    if isinstance(annotation, _UnionType):
        return _union(annotation)
    assert annotation in _PLAIN, f"no form for {annotation}"
    return None, _exactly(_PLAIN[annotation], annotation)


def _union(annotation: Any) -> tuple[Write | None, Read]:
    """Return writer and reader for a union of plain types, of classes, or of None and one other type."""
    kinds = get_args(annotation)
    if set(kinds) <= _PLAIN.keys():
        return None, _exactly(" or ".join(_PLAIN[kind] for kind in kinds), *kinds)
    if _NoneType not in kinds:
        return _one_class_of(kinds)
    (kind,) = (kind for kind in kinds if kind is not _NoneType)
    write, read = _form(kind)
    assert write is not None, annotation
    return (
        lambda value: None if value is None else write(value),
        lambda data: None if data is None else read(data),
    )


def _one_class_of(classes: tuple[type[Any], ...]) -> tuple[Write, Read]:
    """Return writer and reader for objects of several classes; the JSON object names its class."""
    plans = {cls.__name__: _plan(cls) for cls in classes}
    assert not any(_KIND in plan.known for plan in plans.values()), classes
    due = f"an object of the kind {' or '.join(plans)}"

    def write(value: Any) -> dict[str, Any]:
        name = type(value).__name__
        return {_KIND: name, **plans[name].write(value)}

    def read(data: Any) -> Any:
        kind = data.get(_KIND) if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in plans:
            raise _Misfit(due)
        return plans[kind].read({name: value for name, value in data.items() if name != _KIND})

    return write, read


def _tuple(kinds: tuple[Any, ...]) -> tuple[Write | None, Read]:
    """Return writer and reader for a tuple: of any number of one type, or of one value of each type.

    A tuple of the second form is written as it is.
    """
    if kinds[-1] is not Ellipsis:
        reads = tuple(_form(kind)[1] for kind in kinds)
        return None, partial(_read_row, f"a list of {len(kinds)}", reads)
    write, read = _form(kinds[0])
    due = f"a list of {_PLURALS.get(kinds[0], 'lists or objects')}"
    return (None if write is None else lambda values: list(map(write, values))), partial(
        _read_list, due, read
    )


def _read_list(due: str, read: Read, data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise _Misfit(due)
    try:
        return tuple(map(read, data))
    except _Misfit:
        raise _Misfit(due) from None


def _read_row(due: str, reads: tuple[Read, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list) or len(data) != len(reads):
        raise _Misfit(due)
    return tuple(read(value) for read, value in zip(reads, data, strict=True))


def _exactly(due: str, *kinds: type[Any]) -> Read:
    """Return a reader that accepts values of exactly these types, not of derived ones: true is no number."""
    accepted = frozenset(kinds)

    def read(data: Any) -> Any:
        if type(data) not in accepted:
            raise _Misfit(due)
        return data

    return read


def _one_of(choices: tuple[Any, ...]) -> Read:
    def read(data: Any) -> Any:
        if data not in choices:
            raise _Misfit(f"one of {', '.join(map(str, choices))}")
        return data

    return read


def _read_inner(plan: _Plan, data: Any) -> Any:
    if not isinstance(data, dict):
        raise _Misfit("an object")
    return plan.read(data)


def _write_table(table: Table) -> str:
    """Return the table's encoding in base64; empty for an empty table, as most are."""
    return b2a_base64(encode_table(table), newline=False).decode() if table else ""


def _read_table(data: Any) -> Table:
    if data == "":
        return {}
    try:
        raw = a2b_base64(data, strict_mode=True)
        table, end = decode_table(raw)
    except (TypeError, ValueError, Base64Error, ProtocolError):
        raise _Misfit("a table in base64") from None
    if end != len(raw):
        raise _Misfit("one table in base64")
    return table


def _same(value: Any) -> Any:
    return value


_PLANS: Final[dict[str, _Plan]] = {
    name: _plan(cls)
    for name, cls in vars(commands).items()
    if isinstance(cls, type) and issubclass(cls, Command) and cls is not Command
}
"""The plans of all commands by the command's name."""
