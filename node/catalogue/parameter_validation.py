"""Checks of runtime parameters, with RabbitMQ's texts, and how it prints JSON values in them.

A check returns a text for each error, none if the value is valid; the HTTP API joins them after `Validation
failed`.

Source: amqp-behaviour §6.3, §6.4; rabbit_parameter_validation.erl v3.10.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final, TypeAlias

from node.amqp.erlang import binary_literal
from node.catalogue.patterns import PatternInvalid, compile_pattern, encode_name
from node.catalogue.records import Json

Check: TypeAlias = Callable[[str, Json], list[str]]
"""Checks a value, given the name to show in texts; returns the problems, none when all is well."""


_LEVELS_SHOWN: Final = 20
"""The depth to which a value is printed: one nested without end must not exhaust the stack."""


def check_object(
    name: str, value: Json, checks: Mapping[str, Check], *, mandatory: Container[str] = ()
) -> list[str]:
    """Check that `value` is an object, that what it has passes `checks` and that it has nothing else.

    mandatory: the keys that it must have.   An empty list is an empty object, as definitions files have it.
    """
    found = {} if value == [] else value
    if not isinstance(found, dict):
        return [f"{name} not a list {term(found)}"]
    unknown = {key: found[key] for key in found if key not in checks}
    problems = [f"Unrecognised terms {pairs(unknown)} in {name}"] if unknown else []
    # RabbitMQ reports the last check first.
    for key, check in reversed(list(checks.items())):
        if key in found:
            problems += check(key, found[key])
        elif key in mandatory:
            problems.append(f'Key "{key}" not found in {name}')
    return problems


def check_number(name: str, value: Json) -> list[str]:
    """Check that `value` is a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [] if is_number else [f"{name} should be a number, actually was {term(value)}"]


def check_integer(name: str, value: Json) -> list[str]:
    """Check that `value` is an integer."""
    return [] if is_integer(value) else [f"{name} should be a number, actually was {term(value)}"]


def check_text(name: str, value: Json) -> list[str]:
    """Check that `value` is a string."""
    return [] if isinstance(value, str) else [f"{name} should be binary, actually was {term(value)}"]


def check_boolean(name: str, value: Json) -> list[str]:
    """Check that `value` is true or false."""
    return [] if isinstance(value, bool) else [f"{name} should be boolean, actually was {term(value)}"]


def one_of(*choices: str) -> Check:
    """Return a check that a value is one of these strings."""
    allowed = term(list(choices))

    def check(name: str, value: Json) -> list[str]:
        if not isinstance(value, str):
            return check_text(name, value)
        return [] if value in choices else [f"{name} should be one of {allowed}, actually was {term(value)}"]

    return check


def check_pattern(name: str, value: Json) -> list[str]:
    """Check that `value` is a regular expression. The reason within the text is Python's, not PCRE's."""
    if not isinstance(value, str):
        return [f"{name} should be a binary but was {term(value)}"]
    try:
        compile_pattern(value)
    except PatternInvalid as invalid:
        return [
            f'{name} should be regular expression but is invalid: {{"{invalid.reason}",{invalid.position}}}'
        ]
    return []


def is_integer(value: Json) -> bool:
    """True if a JSON value is an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def term(value: Json, levels: int = _LEVELS_SHOWN) -> str:
    """A JSON value as Erlang's `~p` prints it on one line: <<"a">>, 5, true, null, [1,2], #{<<"a">> => 1}."""
    if not levels:
        return "..."
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return binary_literal(encode_name(value))
    if isinstance(value, list):
        return f"[{','.join(term(found, levels - 1) for found in value)}]"
    if isinstance(value, dict):
        return f"#{{{','.join(f'{term(key)} => {term(found, levels - 1)}' for key, found in value.items())}}}"
    return str(value)


def pairs(value: Mapping[str, Json]) -> str:
    """The contents of an object as a list of pairs: [{<<"key">>,1}]."""
    return f"[{','.join(f'{{{term(key)},{term(found)}}}' for key, found in value.items())}]"
