"""Strict reading of untrusted JSON: each value must have the type that the caller asks for.

Nothing is corrected silently. Source: spark §3.4.
"""

import json
import math
from typing import Any, Final, Literal, NoReturn, overload

TEXT_MAX: Final = 4096
"""The most characters of any text: names of AMQP have 255 bytes, reasons are a line."""

WHOLE_MAX: Final = (1 << 63) - 1


class Malformed(ValueError):
    """A document is malformed; the error's text says why in a few words."""


def loaded(data: bytes | str) -> Any:
    """Return the value of a JSON text. Raises: Malformed, also for duplicate keys, NaN and too deep nesting."""
    try:
        text_ = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(text_, object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Malformed("it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise Malformed(f"JSON breaks off or is wrong at character {error.pos}") from error
    except Malformed:
        raise
    except ValueError as error:  # an integer with more digits than Python reads
        raise Malformed("it has a number that is too long") from error
    except RecursionError as error:
        raise Malformed("it nests too deep") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a key comes twice")
    return found


def _no_constant(constant: str) -> NoReturn:
    raise Malformed(f"{constant} is no JSON")


@overload
def text(document: dict[str, Any], name: str) -> str: ...
@overload
def text(document: dict[str, Any], name: str, *, optional: Literal[True]) -> str | None: ...
def text(document: dict[str, Any], name: str, *, optional: bool = False) -> str | None:
    """Return a text of at most `TEXT_MAX` characters; with `optional` None if null or missing. Raises: Malformed."""
    value = document.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise Malformed(f"{name} is no text of at most {TEXT_MAX} characters")
    return value


def texts(document: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of texts. Raises: Malformed."""
    value = document.get(name)
    if not isinstance(value, list) or any(
        not isinstance(each, str) or len(each) > TEXT_MAX for each in value
    ):
        raise Malformed(f"{name} is no list of texts")
    return tuple(value)


def whole(document: dict[str, Any], name: str) -> int:
    """Return an integer from 0 to 2**63 - 1. Raises: Malformed."""
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= WHOLE_MAX:
        raise Malformed(f"{name} is no whole number from 0 on")
    return value


def number(document: dict[str, Any], name: str) -> float:
    """Return a number from 0 on. Raises: Malformed."""
    value = _finite(document.get(name), name)
    if value < 0:
        raise Malformed(f"{name} is below 0")
    return value


def numbers(document: dict[str, Any], name: str) -> dict[str, float]:
    """Return a map of texts to numbers. Raises: Malformed."""
    value = document.get(name)
    if not isinstance(value, dict):
        raise Malformed(f"{name} is no map")
    return {key: _finite(each, name) for key, each in value.items()}


def _finite(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > WHOLE_MAX:
        raise Malformed(f"{name} has a value that is not a number")
    if not math.isfinite(value):
        raise Malformed(f"{name} has a value that is not a number")
    return value


def flag(document: dict[str, Any], name: str) -> bool:
    """Return a boolean. Raises: Malformed."""
    value = document.get(name)
    if not isinstance(value, bool):
        raise Malformed(f"{name} is neither true nor false")
    return value


def fields_of(document: dict[str, Any], name: str, *, single: bool = False) -> list[dict[str, Any]]:
    """Return a list of objects; with `single` a list of the one object in its place. Raises: Malformed."""
    value = document.get(name)
    found = [value] if single else value
    if not isinstance(found, list) or any(not isinstance(each, dict) for each in found):
        raise Malformed(f"{name} is no {'object' if single else 'list of objects'}")
    return found
