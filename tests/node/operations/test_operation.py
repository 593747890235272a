"""Rows of operations name their arguments, and those are their functions'."""

import inspect

import pytest

from node.admin import limits, parameters, permissions, plugins, policies, users, vhosts
from node.agent.delayed_operations import DelayedOperations
from node.agent.list_operations import ListOperations
from node.agent.queue_operations import QueueOperations
from node.agent.runtime_operations import RuntimeOperations
from node.operations.delayed import DELAYED
from node.operations.listings import LISTINGS
from node.operations.operation import Argument, Operation, Table, arguments
from node.operations.parameters import PARAMETERS
from node.operations.permissions import PERMISSIONS
from node.operations.plugins import PLUGINS
from node.operations.policies import POLICIES
from node.operations.queues import QUEUES
from node.operations.runtime import RUNTIME
from node.operations.users import USERS
from node.operations.vhosts import VHOSTS

TABLES: list[tuple[Table, list[object]]] = [
    (USERS, [users]),
    (PERMISSIONS, [permissions]),
    (VHOSTS, [vhosts, limits, ListOperations]),
    (PARAMETERS, [parameters]),
    (POLICIES, [policies]),
    (PLUGINS, [plugins]),
    (LISTINGS, [ListOperations]),
    (QUEUES, [QueueOperations]),
    (RUNTIME, [RuntimeOperations]),
    (DELAYED, [DelayedOperations]),
]
ROWS = [pytest.param(row, places, id=row.name) for table, places in TABLES for row in table.rows]


def test_arguments() -> None:
    options = "--vhost=/ --user? --size?:number --if-empty --level:any=0 --tags:names="
    assert arguments(f"{options} name definition:json exchange? words*") == (
        Argument("vhost", "text", True, False, "/"),
        Argument("user", "text", True, False),
        Argument("size", "number", True, False),
        Argument("if-empty", "switch", True, False),
        Argument("level", "any", True, False, 0),
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
    """A function has a parameter for each argument of its row, and needs nothing else."""
    [function] = [getattr(place, row.function) for place in places if hasattr(place, row.function)]
    first, *others = inspect.signature(function).parameters.values()
    assert first.name in ("admin", "self")
    given = {each.key for each in arguments(row.arguments)} | set(row.given)
    assert given | {"timeout_s"} >= {each.name for each in others if each.default is each.empty}
    assert given <= {each.name for each in others}


def test_rows_say_what_their_commands_are_for() -> None:
    """Rows without help are no commands: HTTP has a place for them, or a command that is more than one question."""
    rows = [row for table, _ in TABLES for row in table.rows]
    assert [row.name for row in rows if row.help.endswith(".")] == []
    assert {row.name for row in rows if not row.help} == {
        "await_online_quorum_plus_one",
        "await_online_synchronized_mirror",
        "check_certificate_expiration",
        "check_if_node_is_mirror_sync_critical",
        "check_if_node_is_quorum_critical",
        "disable_plugin",
        "enable_plugin",
        "log_stream",
        "move_queue",
        "plugins",
        "tls",
    }
