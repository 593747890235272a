"""Commands about a node's runtime, and `report`, print as a live RabbitMQ 3.10.8's do (management §3.2, §3.4)."""

import json
from typing import Any

import pytest

from node.cli.ctl import runtime_commands
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run

STATUS = {
    "is_running": True,
    "rabbitmq_version": "3.10.8",
    "erlang_version": "25.2.3",
    "python_version": "3.11.7",
    "log_files": ["<stdout>", "/var/log/n.log"],
}


@pytest.fixture(autouse=True)
def answers(fake: FakeNode) -> None:
    fake.answers["status"] = STATUS


@pytest.mark.parametrize(
    ("words", "output", "value"),
    [
        (
            "server_version",
            f"Asking node {NODE} for its RabbitMQ version...\n3.10.8\n",
            {"result": "ok", "value": "3.10.8"},
        ),
        (
            "erlang_version",
            f"Asking node {NODE} for its Erlang/OTP version...\nErlang/OTP 25.2.3\n",
            {"result": "ok", "value": "Erlang/OTP 25.2.3"},
        ),
        (
            "log_location",
            f"Log file location(s) on node {NODE} ...\n/var/log/n.log\n",
            {"result": "ok", "node_name": NODE, "paths": ["/var/log/n.log"]},
        ),
        (
            "log_location -a",
            f"Log file location(s) on node {NODE} ...\n<stdout>\n/var/log/n.log\n",
            {"result": "ok", "node_name": NODE, "paths": ["<stdout>", "/var/log/n.log"]},
        ),
    ],
)
def test_from_the_status(run: Run, words: str, output: str, value: Any) -> None:
    assert run(*words.split()) == (0, output, "")
    assert json.loads(run(*words.split(), "--formatter", "json")[1]) == value


def test_memory(run: Run, fake: FakeNode) -> None:
    """The largest part first."""
    fake.answers["memory_breakdown"] = {"memory": {"atom": 0, "binary": 750_000, "code": 250_000}}
    assert run("memory_breakdown", "--unit", "MB")[1] == (
        f"Reporting memory breakdown on node {NODE}...\n"
        "binary: 0.75 mb (75.0%)\ncode: 0.25 mb (25.0%)\natom: 0.0 mb (0.0%)\n\n"
    )
    assert next(iter(json.loads(run("memory_breakdown", "--formatter", "json")[1]).items())) == (
        "binary",
        {"bytes": 750_000, "percentage": 75.0},
    )
    assert run("memory_breakdown", "--formatter", "csv")[1].startswith('"binary.bytes","binary.percentage",')
    code, _, error = run("memory_breakdown", "--unit", "nope")
    assert code == 64
    assert "\"unit 'nope' is not supported. Please use one of: bytes, mb, gb\"\n" in error


def test_log_tail(run: Run, fake: FakeNode) -> None:
    fake.answers["log_tail"] = {"lines": ["a", "b"]}
    assert run("log_tail", "-N", "2")[1] == f"Last 2 log lines on node {NODE} ...\na\nb\n"
    assert fake.asked == [("log_tail", {"number": 2})]
    fake.answers["log_tail"] = {"lines": []}
    assert run("-q", "log_tail")[1] == ""


@pytest.mark.real
def test_log_stream(run: Run, fake: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call goes on where the last one ended."""
    monkeypatch.setattr(runtime_commands, "POLL_S", 0.01)
    fake.answers["log_stream"] = {"lines": ["x"], "after": 7}
    code, output, _ = run("log_tail_stream", "-d", "0.1")
    assert (code, output.startswith(f"Streaming logs from node {NODE} for 0.1 seconds ...\nx\n")) == (0, True)
    assert [asked["after"] for _, asked in fake.asked][:3] == [None, 7, 7]


def test_environment(run: Run, fake: FakeNode) -> None:
    found = {"fluffle": {"node_name": NODE, "amqp": {"heartbeat_s": 60}, "files": []}}
    fake.answers["environment"] = {"environment": found}
    assert run("environment")[1] == (
        f"Application environment of node {NODE} ...\n"
        f'[{{fluffle,\n     [{{node_name,<<"{NODE}">>}},\n      {{amqp,\n          [{{heartbeat_s,60}}]}},\n'
        "      {files,[]}]}]\n"
    )
    assert json.loads(run("environment", "--formatter", "json")[1]) == found


def test_variables(run: Run, fake: FakeNode) -> None:
    fake.answers["os_env"] = {"variables": {"RABBITMQ_NODENAME": NODE}}
    assert run("-q", "os_env")[1] == f"RABBITMQ_NODENAME={NODE}\n"
    assert run("os_env", "--formatter", "csv")[1] == f'"variable","value"\n"RABBITMQ_NODENAME","{NODE}"\n'


def test_resolve_hostname(run: Run, fake: FakeNode) -> None:
    fake.answers["resolve_hostname"] = {"addresses": ["::1"]}
    assert run("resolve_hostname", "h", "--address-family", "IPv6")[1] == (
        f"Asking node {NODE} to resolve hostname h to IPv6 addresses...\n::1\n"
    )
    fake.answers["resolve_hostname"] = {"addresses": []}
    assert run("-q", "resolve_hostname", "h")[::2] == (
        65,
        "Error:\nHostname does not resolve (resolution failed with an nxdomain)\n",
    )
    assert run("resolve_hostname", "h", "--address-family", "x")[0] == 65


def test_quorum_status(run: Run, fake: FakeNode) -> None:
    row = dict.fromkeys(("Log Index", "Commit Index", "Snapshot Index", "Term"), 1)
    fake.answers["quorum_status"] = {"rows": [{"Node Name": NODE, "Raft State": "leader", **row}]}
    output = run("quorum_status", "q", "--formatter", "csv")[1]
    assert output.splitlines()[1] == f'"{NODE}","leader","1","1","1","1"'


def test_report(run: Run, fake: FakeNode) -> None:
    """One command after the other, those about a vhost for each."""
    rows: dict[str, Any] = {"rows": []}
    fake.answers |= {
        "cluster_status": {"cluster_name": "c"},
        "environment": {"environment": {}},
        "list_vhosts": {"rows": [{"name": "/"}, {"name": "v"}]},
        "command_line_arguments": {"arguments": []},
        "os_env": {"variables": {}},
        "list_queues": {"queues": []},
        "list_policies": rows,
    }
    for name in ("connections", "channels", "exchanges", "bindings", "permissions", "parameters"):
        fake.answers[f"list_{name}"] = rows
    fake.answers["list_global_parameters"] = rows
    code, output, _ = run("report")
    assert code == 0
    for line in (
        f"Reporting server status of node {NODE} ...",
        f"Status of node {NODE} ...",
        "Listing connections ...",
        "Listing queues for vhost / ...",
        "Listing queues for vhost v ...",
        'Listing permissions for vhost "v" ...',
        "Listing global runtime parameters ...",
    ):
        assert f"\n{line}\n" in f"\n{output}"


def test_autocomplete(run: Run, fake: FakeNode) -> None:
    assert run("autocomplete", "list_q") == (0, "list_queues\n", "")
    assert fake.asked == []
