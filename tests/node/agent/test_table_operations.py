"""The control socket takes the arguments of a row of `node.operations`, calls it, and tells refusals."""

import asyncio
from typing import Any

import pytest

from node.admin import users
from node.admin.admin import Admin, AdminError
from node.agent.table_operations import refusal, taken, verbs
from node.io.control import ControlError
from node.operations.operation import Operation, Refusal, Table, arguments
from node.operations.users import USERS
from tests.kit.office import Office


def test_a_verb_calls_the_function_of_its_name() -> None:
    office = Office()
    known = verbs(USERS, lambda: office.admin, users)

    def ask(name: str, **given: object) -> Any:
        return asyncio.run(known[name](dict(given), 1.0))

    assert ask("add_user", user="u", password="p") == {}
    ask("set_user_tags", user="u", tags=["a"])
    assert ask("list_users")["rows"][1] == {"user": "u", "tags": ["a"]}
    with pytest.raises(ControlError, match='User "u" already exists') as raised:
        ask("add_user", user="u", password="p")
    assert raised.value.exit_code == 70


def test_a_broker_that_does_not_run_is_told_before_what_is_wrong_with_arguments() -> None:
    def stopped() -> Admin:
        raise ControlError(64, "the broker is stopped")

    with pytest.raises(ControlError, match="stopped"):
        asyncio.run(verbs(USERS, stopped, users)["set_user_limits"]({"user": "u", "limits": "{"}, 1.0))


def test_a_method_of_the_agent_may_do_it_and_get_the_time() -> None:
    class Agent:
        async def wait(self, queue: str, timeout_s: float) -> dict[str, Any]:
            return {"queue": queue, "timeout_s": timeout_s}

    table = Table("", (Operation("wait", "queue"),))
    office = Office()
    [wait] = verbs(table, lambda: office.admin, users, Agent()).values()
    assert asyncio.run(wait({"queue": "q"}, 3.0)) == {"queue": "q", "timeout_s": 3.0}


ROW = Operation(
    "do", refusals={"word": Refusal(67, "{0} of {user} on {node}"), "refused": Refusal(65, "not {user}")}
)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (AdminError("not_found", ["word", "{user}"]), 67, "{user} of u on n"),
        (AdminError("refused", "whatever"), 65, "not u"),
        (AdminError("not_found", ["no_such_vhost", "v"]), 65, "Virtual host 'v' does not exist"),
        (AdminError("not_found", ["no_such_user", "v"]), 69, '{:no_such_user, "v"}'),
        (AdminError("exists", "it is there"), 70, "it is there"),
        (AdminError("invalid", ["odd", 5]), 69, "odd: 5"),
    ],
)
def test_refusals(error: AdminError, code: int, text: str) -> None:
    found = refusal(ROW, error, {"user": "u", "node": "n"})
    assert (found.exit_code, found.text) == (code, text)


@pytest.mark.parametrize(
    ("argument", "value", "found"),
    [
        ("name", "x", "x"),
        ("name?", None, None),
        ("--name=x", None, "x"),
        ("name*", ["a"], ["a"]),
        ("name:json", "[1]", [1]),
        ("name:any", 5, 5),
        ("--name", True, True),
        ("--name", "yes", False),
    ],
)
def test_values(argument: str, value: object, found: object) -> None:
    [wanted] = arguments(argument)
    assert taken(wanted, {"name": value}) == found


@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        ("name", None, "missing or no text"),
        ("name", 5, "missing or no text"),
        ("name?", 5, "missing or no text"),
        ("name*", "a", "no list of texts"),
        ("name:json", "NaN", "JSON decoding error"),
        ("name:json", "[" * 100_000, "JSON decoding error"),
    ],
)
def test_values_that_are_refused(argument: str, value: object, says: str) -> None:
    [wanted] = arguments(argument)
    with pytest.raises(ControlError, match=says):
        taken(wanted, {"name": value})
