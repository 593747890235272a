"""`rabbitmqadmin`, RabbitMQ's own script over the HTTP API, with each of its commands; management §1.13.

The script is RabbitMQ's and not kept here. It is taken from Debian's package rabbitmq-server, installed or unpacked:
the variable RABBITMQADMIN says where it is, else /usr/bin.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.amqp_client import Connection
from tests.kit.servers import Server

SCRIPT = Path(os.environ.get("RABBITMQADMIN", "/usr/bin/rabbitmqadmin"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCRIPT.exists(), reason="there is no rabbitmqadmin: set RABBITMQADMIN"),
]

Run = Callable[..., str]


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    """Run a command; what it prints."""
    host, _, port = server.management_url.removeprefix("http://").rpartition(":")

    def run_one(*words: str, is_good: bool = True, options: tuple[str, ...] = ()) -> str:
        command = [
            sys.executable,
            str(SCRIPT),
            "-H",
            host,
            "-P",
            port,
            "-u",
            "guest",
            "-p",
            "guest",
            *options,
        ]
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=60.0, cwd=tmp_path, check=False
        )
        assert (done.returncode == 0) is is_good, (words, done.stdout, done.stderr)
        return done.stdout if is_good else done.stdout + done.stderr

    return run_one


def listed(run: Run, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run(*words, options=("-f", "raw_json")))
    return rows


@pytest.fixture
def vhost(run: Run) -> Any:
    """A vhost of its own, where guest may do everything."""
    run("declare", "vhost", "name=admin/v")
    run("declare", "permission", "vhost=admin/v", "user=guest", "configure=.*", "write=.*", "read=.*")
    yield "admin/v"
    run("delete", "vhost", "name=admin/v")


def test_show_overview(run: Run) -> None:
    assert "3.10" in run("show", "overview")


@pytest.mark.parametrize(
    "what",
    [
        *("users", "vhosts", "connections", "exchanges", "bindings", "permissions", "channels"),
        *("parameters", "consumers", "queues", "policies", "operator_policies", "nodes", "vhost_limits"),
    ],
)
@pytest.mark.parametrize("shape", ["raw_json", "pretty_json", "tsv", "kvp", "long", "table", "bash"])
def test_list_in_every_format(run: Run, what: str, shape: str) -> None:
    assert run("list", what, options=("-f", shape)) is not None


def test_list_with_columns_and_sort(run: Run) -> None:
    printed = run("list", "exchanges", "name", "type", options=("-S", "name", "-f", "tsv"))
    assert "amq.topic\ttopic" in printed.splitlines()


def test_queues_exchanges_bindings_and_messages(run: Run, vhost: str) -> None:
    there = ("-V", vhost)
    arguments = 'arguments={"alternate-exchange":"amq.fanout"}'
    run("declare", "exchange", "name=x", "type=topic", "durable=true", arguments, options=there)
    run("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length":10}', options=there)
    run("declare", "binding", "source=x", "destination=q", "routing_key=a.#", options=there)
    assert "Message published" in run(
        "publish", "exchange=x", "routing_key=a.b", "payload=hello", options=there
    )
    unrouted = run("publish", "exchange=amq.direct", "routing_key=none", "payload=hello", options=there)
    assert "NOT routed" in unrouted
    (got,) = got_messages(run, vhost, "ackmode=ack_requeue_true")
    assert (got["payload"], got["routing_key"], got["exchange"]) == ("hello", "a.b", "x")
    run("purge", "queue", "name=q", options=there)
    assert got_messages(run, vhost) == []
    rows = json.loads(run("list", "bindings", options=(*there, "-f", "raw_json")))
    assert {"x", ""} <= {row["source"] for row in rows}
    to_queue = ("source=x", "destination_type=queue", "destination=q")
    run("delete", "binding", *to_queue, "properties_key=a.%23", options=there)
    run("delete", "queue", "name=q", options=there)
    run("delete", "exchange", "name=x", options=there)
    assert "Not found: /api/queues" in run("delete", "queue", "name=q", is_good=False, options=there)


def got_messages(run: Run, vhost: str, *words: str) -> list[dict[str, Any]]:
    """Return messages that were got from the queue q."""
    rows: list[dict[str, Any]] = json.loads(
        run("get", "queue=q", *words, options=("-V", vhost, "-f", "raw_json"))
    )
    return rows


def test_properties_of_a_message(run: Run, vhost: str) -> None:
    run("declare", "queue", "name=q", options=("-V", vhost))
    properties = '{"delivery_mode":2,"headers":{"h":1}}'
    run("publish", "routing_key=q", "payload=x", f"properties={properties}", options=("-V", vhost))
    (row,) = got_messages(run, vhost)
    assert row["properties"] == {"delivery_mode": 2, "headers": {"h": 1}}


def test_columns_of_a_message_without_properties(run: Run, vhost: str) -> None:
    """Scripts cut by column."""
    run("declare", "queue", "name=q", options=("-V", vhost))
    run("publish", "routing_key=q", "payload=x", options=("-V", vhost))
    head = run("get", "queue=q", options=("-V", vhost, "-f", "tsv")).splitlines()[0].split("\t")
    assert head == [
        "routing_key",
        "exchange",
        "message_count",
        "payload",
        "payload_bytes",
        "payload_encoding",
        "properties",
        "redelivered",
    ]


def test_users_permissions_policies_parameters_and_limits(run: Run, vhost: str) -> None:
    run("declare", "user", "name=adm", "password=p", "tags=monitoring,policymaker")
    run("declare", "permission", f"vhost={vhost}", "user=adm", "configure=a", "write=b", "read=c")
    rows = [row for row in listed(run, "list", "permissions") if row["user"] == "adm"]
    assert rows == [{"user": "adm", "vhost": vhost, "configure": "a", "write": "b", "read": "c"}]
    run("delete", "permission", f"vhost={vhost}", "user=adm")
    run("delete", "user", "name=adm")
    there = ("-V", vhost)
    run(
        "declare",
        "policy",
        "name=p",
        "pattern=^x",
        'definition={"max-length":1}',
        "apply-to=queues",
        options=there,
    )
    run("declare", "operator_policy", "name=o", "pattern=^x", 'definition={"max-length":2}', options=there)
    names = [row["name"] for what in ("policies", "operator_policies") for row in listed(run, "list", what)]
    assert {"p", "o"} <= set(names)
    run("delete", "policy", "name=p", options=there)
    run("delete", "operator_policy", "name=o", options=there)
    run("declare", "vhost_limit", f"vhost={vhost}", "name=max-queues", "value=3")
    run("delete", "vhost_limit", f"vhost={vhost}", "name=max-queues")
    wrong = ("component=nope", "name=n", "value={}")
    told = run("declare", "parameter", *wrong, is_good=False, options=there)
    assert "Validation failed\n\ncomponent nope not found" in told


def test_connections_are_closed(run: Run, server: Server) -> None:
    connection = Connection(server)
    connection.channel(1)
    # RabbitMQ shows a connection after its next statistics.
    port = connection.socket.getsockname()[1]
    (row,) = await_rows(run, "connections", lambda row: f":{port} -> " in row["name"])
    run("close", "connection", f"name={row['name']}")
    connection.expect_connection_close(320, "CONNECTION_FORCED - Closed via management plugin", None)


def await_rows(run: Run, what: str, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return the wanted rows of a list, once there are some."""
    deadline = time.monotonic() + 20.0
    while True:
        rows = [row for row in listed(run, "list", what) if wanted(row)]
        if rows:
            return rows
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_definitions_go_out_and_come_in(run: Run, vhost: str, tmp_path: Path) -> None:
    run("declare", "queue", "name=kept", options=("-V", vhost))
    run("export", "all.json")
    document = json.loads((tmp_path / "all.json").read_text())
    assert "kept" in [queue["name"] for queue in document["queues"]]
    run("delete", "queue", "name=kept", options=("-V", vhost))
    run("import", "all.json")
    assert "kept" in [row["name"] for row in listed(run, "list", "queues", "name")]
    run("export", "one.json", options=("-V", vhost))


def test_wrong_passwords_and_names_are_told(run: Run) -> None:
    assert "Access refused" in run("list", "queues", is_good=False, options=("-p", "wrong"))
    assert "Not found: /api/queues" in run("get", "queue=nope", is_good=False)


def test_help(run: Run) -> None:
    assert "declare queue" in run("help", "subcommands")
