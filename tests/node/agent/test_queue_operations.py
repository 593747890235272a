"""Policies and synchronisation as `fluffle ctl` asks a node alone for them: what the live RabbitMQ 3.10.8 says."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent import Asker, directory, serve

pytestmark = pytest.mark.real

__all__ = ["directory"]  # a fixture

ALL = '{"ha-mode":"all"}'


def policy(**changes: Any) -> dict[str, Any]:
    asked = {
        "vhost": "/",
        "name": "ha",
        "pattern": "^ha",
        "definition": ALL,
        "priority": 3,
        "apply_to": "queues",
    }
    return {**asked, **changes}


def test_policies(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        assert ask("list_policies", vhost="/") == {"rows": []}
        ask("set_policy", **policy())
        definition = '{"max-length":5,"ha-params":2,"ha-mode":"exactly"}'
        ask("set_policy", **policy(name="b", definition=definition, priority=0, apply_to="all"))
        ask("set_operator_policy", **policy(name="op", definition='{"max-length":50}'))
        first, second = ask("list_policies", vhost="/")["rows"]
        assert first["definition"] == '{"ha-mode":"exactly","ha-params":2,"max-length":5}'
        assert second == {
            "vhost": "/",
            "name": "ha",
            "pattern": "^ha",
            "apply-to": "queues",
            "definition": ALL,
            "priority": 3,
        }
        [operator] = ask("list_operator_policies", vhost="/")["rows"]
        assert operator["name"] == "op"
        ask("clear_policy", vhost="/", name="ha")
        assert ask.fails("clear_policy", vhost="/", name="ha") == (69, "Parameter does not exist")
        ask("clear_operator_policy", vhost="/", name="op")
        assert ask("list_operator_policies", vhost="/") == {"rows": []}

    serve(directory, asks)


REFUSALS: list[tuple[str, dict[str, Any], int, str]] = [
    ("set_policy", policy(definition="notjson"), 69, "JSON decoding error. Reason: badarg"),
    ("set_policy", policy(definition='{"a'), 69, "JSON decoding error. Reason: badarg"),
    ("set_policy", policy(definition="NaN"), 69, "JSON decoding error. Reason: badarg"),
    ("set_policy", policy(definition="[" * 100_000), 69, "JSON decoding error. Reason: badarg"),
    ("set_policy", policy(definition="{}"), 69, "Validation failed\n\nno policy provided\n"),
    ("set_policy", policy(definition="[]"), 69, "Validation failed\n\nno policy provided\n"),
    (
        "set_policy",
        policy(definition='{"ha-mode":"foo"}'),
        69,
        'Validation failed\n\n<<"foo">> is not a valid ha-mode value\n',
    ),
    (
        "set_policy",
        policy(definition='{"foo":1}'),
        69,
        'Validation failed\n\n[{<<"foo">>,1}] are not recognised policy settings\n',
    ),
    (
        "set_operator_policy",
        policy(),
        69,
        'Validation failed\n\n[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings\n',
    ),
    (
        "set_policy",
        policy(apply_to="x"),
        69,
        "Validation failed\n\napply-to 'x' unrecognised; should be 'queues', 'exchanges' or 'all'\n",
    ),
    ("set_policy", policy(vhost="nosuch"), 65, "Virtual host 'nosuch' does not exist"),
    ("list_policies", {"vhost": "nosuch"}, 65, "Virtual host 'nosuch' does not exist"),
    ("clear_policy", {"vhost": "nosuch", "name": "ha"}, 69, "Parameter does not exist"),
    ("sync_queue", {"vhost": "/", "queue": "nosuch"}, 69, "not_found"),
    ("sync_queue", {"vhost": "nosuch", "queue": "q"}, 69, "not_found"),
    ("cancel_sync_queue", {"vhost": "/", "queue": "nosuch"}, 69, "not_found"),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """Return the answer to each of the refusals, as code and text."""
    found: list[tuple[int, str]] = []

    def asks(ask: Asker) -> None:
        found.extend(ask.fails(operation, **arguments) for operation, arguments, _, _ in REFUSALS)

    serve(tmp_path_factory.mktemp("refused"), asks)
    return found


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_refusals(refused: list[tuple[int, str]], number: int) -> None:
    assert refused[number] == REFUSALS[number][2:]


def test_a_node_alone_has_no_rings(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        assert ask("list_rings", vhost="/") == {"rings": []}
        everything = {"type": "all", "vhost_pattern": ".*", "queue_pattern": ".*"}
        assert ask("rebalance", **everything) == {"nodes": []}
        code, text = ask.fails("rebalance", **{**everything, "queue_pattern": "("})
        assert code == 69
        assert text.startswith("the pattern '(' is invalid")
        assert ask.fails("rebalance", **{**everything, "type": "x"})[0] == 64

    serve(directory, asks)
