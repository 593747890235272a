"""Commands about parameters: as a live RabbitMQ 3.10.8's (management §3.2, §3.3)."""

import pytest

from tests.node.cli.ctl.fake_node import FakeNode, Run


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        (
            "set_parameter comp name 1",
            {"vhost": "/", "component": "comp", "name": "name", "value": "1"},
            'Setting runtime parameter "name" for component "comp" to "1" in vhost "/" ...\n',
        ),
        (
            "clear_parameter -p v comp name",
            {"vhost": "v", "component": "comp", "name": "name"},
            'Clearing runtime parameter "name" for component "comp" on vhost "v" ...\n',
        ),
        (
            'set_global_parameter gp {"a":1}',
            {"name": "gp", "value": '{"a":1}'},
            'Setting global runtime parameter "gp" to "{"a":1}" ...\n',
        ),
        ("clear_global_parameter gp", {"name": "gp"}, 'Clearing global runtime parameter "gp" ...\n'),
    ],
)
def test_a_command(run: Run, fake: FakeNode, words: str, asked: object, output: str) -> None:
    assert run(*words.split()) == (0, output, "")
    assert fake.asked == [(words.split()[0], asked)]


def test_lists(run: Run, fake: FakeNode) -> None:
    """Values are JSON texts, with their keys in the order that they were given in."""
    value = {"pattern": "^h", "definition": {"max-length": 50}, "apply-to": "all"}
    fake.answers = {
        "list_parameters": {"rows": [{"component": "operator_policy", "name": "op", "value": value}]},
        "list_global_parameters": {"rows": [{"name": "cluster_name", "value": "n"}]},
    }
    text = '{"pattern":"^h","definition":{"max-length":50},"apply-to":"all"}'
    assert run("list_parameters")[1] == (
        f'Listing runtime parameters for vhost "/" ...\ncomponent\tname\tvalue\noperator_policy\top\t{text}\n'
    )
    assert run("list_global_parameters")[1] == (
        'Listing global runtime parameters ...\nname\tvalue\ncluster_name\t"n"\n'
    )
    assert run("-q", "list_global_parameters", "--formatter", "erlang")[1] == (
        '[[{name,cluster_name},{value,<<"\\"n\\"">>}]]\n'
    )
    fake.answers["list_parameters"] = {"rows": []}
    assert run("-q", "list_parameters")[1] == "\n"
