"""Lists of connections, channels, consumers, exchanges, bindings: as a live RabbitMQ 3.10.8's (management §3.3)."""

import json
from typing import Any

import pytest

from node.cli.ctl.lists import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, FEATURE_FLAGS, Listing
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run

CONNECTION = {
    "pid": "<n1@h.1.7.0>",
    "user": "guest",
    "host": "127.0.0.1",
    "peer_host": "::1",
    "peer_port": 58702,
    "state": "running",
    "protocol": [0, 9, 1],
    "ssl": False,
    "ssl_cipher": None,
    "client_properties": {"product": "x", "capabilities": {"basic.nack": True}},
}
BINDING = {
    "source_name": "h",
    "source_kind": "exchange",
    "destination_name": "q2",
    "destination_kind": "queue",
    "routing_key": "",
    "arguments": {"b": True, "k": 1, "s": "v"},
}


@pytest.mark.parametrize(
    ("words", "listing", "banner"),
    [
        ("list_connections", CONNECTIONS, "Listing connections ..."),
        ("list_channels", CHANNELS, "Listing channels ..."),
        ("list_consumers -p v", CONSUMERS, "Listing consumers in vhost v ..."),
        ("list_exchanges -p v", EXCHANGES, "Listing exchanges for vhost v ..."),
        ("list_bindings -p v", BINDINGS, "Listing bindings for vhost v..."),
        ("list_feature_flags", FEATURE_FLAGS, "Listing feature flags ..."),
    ],
)
def test_defaults(run: Run, fake: FakeNode, words: str, listing: Listing, banner: str) -> None:
    """Without rows there is no header either."""
    name = words.split()[0]
    fake.answers[name] = {"rows": []}
    assert run(*words.split()) == (0, f"{banner}\n", "")
    assert fake.asked == [(name, {"vhost": "v" if "-p" in words else "/", "columns": list(listing.default)})]
    assert run(*words.split(), "--formatter", "json")[1] == "[\n]\n"
    code, _, error = run(*words.split(), "name,nope", "nope2", "nope")
    assert code == 64
    assert "nope,nope2 are not supported" in error


def test_a_connection(run: Run, fake: FakeNode) -> None:
    """Addresses and versions are Erlang's tuples; what is not known is empty."""
    fake.answers["list_connections"] = {"rows": [CONNECTION]}
    assert run("-q", "list_connections")[1] == (
        "user\tpeer_host\tpeer_port\tstate\nguest\t::1\t58702\trunning\n"
    )
    columns = ("pid", "host", "protocol", "ssl", "ssl_cipher", "client_properties")
    assert run("-s", "list_connections", *columns)[1] == (
        "<n1@h.1.7.0>\t127.0.0.1\t{0,9,1}\tfalse\t\t"
        '[{"product","x"},{"capabilities",[{"basic.nack",true}]}]\n'
    )
    assert json.loads(run("list_connections", *columns, "--formatter", "json")[1]) == [
        {
            "pid": "<n1@h.1.7.0>",
            "host": [127, 0, 0, 1],
            "protocol": [0, 9, 1],
            "ssl": False,
            "ssl_cipher": "",
            "client_properties": [
                ["product", "longstr", "x"],
                ["capabilities", "table", [["basic.nack", "bool", True]]],
            ],
        }
    ]
    assert run("-q", "list_connections", "--formatter", "erlang")[1] == (
        '[[{user,<<"guest">>},{peer_host,{0,0,0,0,0,0,0,1}},{peer_port,58702},{state,running}]]\n'
    )


def test_a_binding(run: Run, fake: FakeNode) -> None:
    fake.answers["list_bindings"] = {"rows": [BINDING]}
    assert run("-s", "list_bindings")[1] == ('h\texchange\tq2\tqueue\t\t[{"b",true},{"k",1},{"s","v"}]\n')
    assert run("-q", "list_bindings", "arguments", "--formatter", "erlang")[1] == (
        '[[{arguments,[{<<"b">>,bool,true},{<<"k">>,signedint,1},{<<"s">>,longstr,<<"v">>}]}]]\n'
    )


@pytest.mark.parametrize(
    ("words", "asked", "banner"),
    [
        ("enable_feature_flag all", {"name": "all"}, "Enabling all feature flags ...\n"),
        (
            "enable_feature_flag quorum_queue",
            {"name": "quorum_queue"},
            'Enabling feature flag "quorum_queue" ...\n',
        ),
    ],
)
def test_flags(run: Run, fake: FakeNode, words: str, asked: object, banner: str) -> None:
    assert run(*words.split()) == (0, banner, "")
    assert fake.asked == [("enable_feature_flag", asked)]


def test_attempts_to_log_in(run: Run, fake: FakeNode) -> None:
    row: dict[str, Any] = {
        "protocol": "amqp091",
        "auth_attempts": 2,
        "auth_attempts_failed": 0,
        "auth_attempts_succeeded": 2,
    }
    fake.answers["list_node_auth_attempt_stats"] = {"rows": [row]}
    banner = f'Listing authentication\n attempts for node "{NODE}" ...\n'
    assert run("list_node_auth_attempt_stats")[1] == (
        f"{banner}protocol\tauth_attempts\tauth_attempts_failed\tauth_attempts_succeeded\namqp091\t2\t0\t2\n"
    )
    assert json.loads(run("list_node_auth_attempt_stats", "--formatter", "json")[1]) == {
        "attempts": [row],
        "node": NODE,
        "result": "ok",
    }
    fake.answers["list_node_auth_attempt_stats"] = {"rows": []}
    assert run("list_node_auth_attempt_stats", "--by-source")[1] == (
        f"{banner}Node {NODE} reported no authentication attempt stats\n"
    )


def test_unresponsive_queues(run: Run, fake: FakeNode) -> None:
    fake.answers["list_unresponsive_queues"] = {"rows": [{"name": "q"}]}
    assert run("list_unresponsive_queues", "--queue-timeout", "100")[1] == (
        "Listing unresponsive queues for vhost / ...\nname\nq\n"
    )
    assert fake.asked == [("list_unresponsive_queues", {"vhost": "/"})]


def test_hashes_need_no_node(run: Run, fake: FakeNode) -> None:
    code, output, _ = run("list_hashes")
    assert (code, fake.asked) == (0, [])
    assert output.startswith("Listing supported hash algorithms ...\n[blake2s,")
