"""The control socket's operations that are rows of `node.operations` check their arguments and word refusals here.

{"user": "u", "tags": ["a"]} ─► node.admin.users.set_user_tags(admin, user="u", tags=["a"])
                                  AdminError ["no_such_user", "u"] ─► exit code 67, 'User "u" does not exist'
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from node.admin.admin import Admin, AdminError
from node.agent import errors
from node.catalogue.records import Json
from node.io.control import EX_UNAVAILABLE, EX_USAGE, ControlError
from node.operations.operation import (
    DEFAULT_REFUSALS,
    EXIT_CODES,
    Argument,
    Operation,
    Table,
    arguments,
)

Arguments = dict[str, Any]
Verb = Callable[[Arguments, float], Awaitable[Any]]


def verbs(table: Table, admin: Callable[[], Admin], *places: object) -> dict[str, Verb]:
    """Return the control socket's operations of a table, by name.

    admin: returns the administration of the broker; raises ControlError unless it runs.
    places: where the functions are: files of `node.admin`, or objects of the agent that have methods of their names.
    """
    return {row.name: _verb(row, admin, places) for row in table.rows}


def _verb(row: Operation, admin: Callable[[], Admin], places: tuple[object, ...]) -> Verb:
    place = next(each for each in places if hasattr(each, row.function))
    function, is_of_admin = getattr(place, row.function), isinstance(place, ModuleType)
    is_timed = "timeout_s" in inspect.signature(function).parameters

    async def do(given: Arguments, timeout_s: float) -> Any:
        office = [admin()] if is_of_admin else []
        values = {each.key: taken(each, given) for each in arguments(row.arguments)}
        more = {**row.given, "timeout_s": timeout_s} if is_timed else row.given
        try:
            found = function(*office, **values, **more)
            if inspect.isawaitable(found):
                found = await found
        except AdminError as error:
            named = {"node": office[0].config.node_name} if office else {}
            raise refusal(row, error, {**values, **named}) from None
        return {"rows": found} if isinstance(found, list) else found if isinstance(found, dict) else {}

    return do


def refusal(row: Operation, error: AdminError, named: Mapping[str, object]) -> ControlError:
    """Return the error for the command line.   named: values that its text may contain."""
    word, *details = error.reason if isinstance(error.reason, list) else [error.reason]
    known = {**DEFAULT_REFUSALS, **row.refusals}
    found = known.get(str(word)) or known.get(error.kind)
    if found is None:
        return ControlError(EXIT_CODES.get(error.kind, EX_UNAVAILABLE), error.text)
    return ControlError(found.exit_code, found.text.format(*details, **named))


def taken(argument: Argument, given: Arguments) -> Any:
    """Return the checked value of an argument. Raises: ControlError."""
    value = given.get(argument.key)
    if argument.kind == "switch":
        return value is True
    if argument.kind in ("texts", "names"):
        return texts(given, argument.key)
    if value is None and not argument.is_needed:
        return argument.default
    if argument.kind == "any":
        return value
    if argument.kind == "number":
        return number(given, argument.key)
    return parsed(text(given, argument.key)) if argument.kind == "json" else text(given, argument.key)


def text(given: Arguments, name: str) -> str:
    """Return a text among the arguments. Raises: ControlError."""
    value = given.get(name)
    if not isinstance(value, str):
        raise ControlError(EX_USAGE, f"the argument '{name}' is missing or no text")
    return value


def texts(given: Arguments, name: str) -> list[str]:
    """Return a list of texts; empty if it is not given. Raises: ControlError."""
    value = given.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ControlError(EX_USAGE, f"the argument '{name}' is no list of texts")
    return value


def number(given: Arguments, name: str) -> int:
    """Return a number among the arguments. Raises: ControlError unless it is 0 or more."""
    value = given.get(name)
    if type(value) is not int or value < 0:
        raise ControlError(EX_USAGE, f"the argument '{name}' is no number")
    return value


def parsed(value: str) -> Json:
    """Parse JSON from the command line. Raises: ControlError."""

    def refuse(constant: str) -> Json:
        raise ValueError(f"{constant} is no JSON")

    try:
        found: Json = json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise errors.unavailable(errors.NO_JSON) from None
    return found
