"""How the rows of operations name their arguments, and that those are their functions'."""

import inspect

import pytest

from node.admin import limits, parameters, permissions, policies, users, vhosts
from node.agent.list_operations import ListOperations
from node.agent.queue_operations import QueueOperations
from node.operations.listings import LISTINGS
from node.operations.operation import Argument, Operation, Table, arguments
from node.operations.parameters import PARAMETERS
from node.operations.permissions import PERMISSIONS
from node.operations.policies import POLICIES
from node.operations.queues import QUEUES
from node.operations.users import USERS
from node.operations.vhosts import VHOSTS

TABLES: list[tuple[Table, list[object]]] = [
    (USERS, [users]),
    (PERMISSIONS, [permissions]),
    (VHOSTS, [vhosts, limits, ListOperations]),
    (PARAMETERS, [parameters]),
    (POLICIES, [policies]),
    (LISTINGS, [ListOperations]),
    (QUEUES, [QueueOperations]),
]
ROWS = [pytest.param(row, places, id=row.name) for table, places in TABLES for row in table.rows]


def test_arguments() -> None:
    text = "--vhost=/ --user? --if-empty --priority:any=0 --tags:names= name definition:json exchange? words*"
    assert arguments(text) == (
        Argument("vhost", "text", True, False, "/"),
        Argument("user", "text", True, False),
        Argument("if-empty", "switch", True, False),
        Argument("priority", "any", True, False, 0),
        Argument("tags", "names", True, False, ""),
        Argument("name", "text", False, True),
        Argument("definition", "json", False, True),
        Argument("exchange", "text", False, False),
        Argument("words", "texts", False, False),
    )
    assert arguments("") == ()
    assert arguments("--if-empty")[0].key == "if_empty"


@pytest.mark.parametrize(("row", "places"), ROWS)
def test_a_function_takes_the_arguments_of_its_row(row: Operation, places: list[object]) -> None:
    """It has a parameter for each, and needs nothing else."""
    [function] = [getattr(place, row.function) for place in places if hasattr(place, row.function)]
    first, *others = inspect.signature(function).parameters.values()
    assert first.name in ("admin", "self")
    given = {each.key for each in arguments(row.arguments)} | set(row.given)
    assert given | {"timeout_s"} >= {each.name for each in others if each.default is each.empty}
    assert given <= {each.name for each in others}


@pytest.mark.parametrize("row", [row for table, _ in TABLES for row in table.rows])
def test_a_row_says_what_its_command_is_for(row: Operation) -> None:
    """All but `move_queue`, for which only HTTP has a place."""
    assert bool(row.help) == (row.name != "move_queue")
    assert not row.help.endswith(".")
