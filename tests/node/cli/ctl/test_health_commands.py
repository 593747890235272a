"""Health checks: texts, JSON and exit codes as a live RabbitMQ 3.10.8's (management §1.11, §3.2)."""

import json
import socket
from typing import Any

import pytest

from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run

LISTENERS = [
    {
        "interface": "[::]",
        "node": NODE,
        "port": 15672,
        "protocol": "http",
        "purpose": "HTTP API",
    },
    {"interface": "127.0.0.1", "node": NODE, "port": 5672, "protocol": "amqp", "purpose": "AMQP 0-9-1"},
]
MEMORY = {"node": NODE, "resource": "memory"}
DISK = {"node": "n2@h", "resource": "disk"}

ASKING = f"Asking node {NODE} to report any local resource alarms ...\n"


@pytest.fixture(autouse=True)
def answers(fake: FakeNode) -> None:
    fake.answers["status"] = {"is_running": True, "listeners": LISTENERS}
    fake.answers["cluster_status"] = {"alarms": []}


@pytest.mark.parametrize(
    ("words", "output", "value"),
    [
        (
            "check_alarms",
            f"{ASKING}Node {NODE} reported no alarms, local or clusterwide\n",
            {"result": "ok"},
        ),
        ("check_local_alarms", f"{ASKING}Node {NODE} reported no local alarms\n", {"result": "ok"}),
        (
            "alarms",
            f"Asking node {NODE} to report any known resource alarms ...\n"
            f"Node {NODE} reported no alarms, local or clusterwide\n",
            {"result": "ok", "node": NODE, "alarms": []},
        ),
        (
            "listeners",
            f"Asking node {NODE} to report its protocol listeners ...\n"
            "Interface: [::], port: 15672, protocol: http, purpose: HTTP API\n"
            "Interface: 127.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1\n",
            {"result": "ok", "node": NODE, "listeners": LISTENERS},
        ),
        (
            "check_port_listener 5672",
            f"Asking node {NODE} if there's an active listener on port 5672 ...\n"
            f"A listener for port 5672 is running on node {NODE}.\n",
            {"result": "ok", "node": NODE, "port": "5672"},
        ),
        (
            "check_protocol_listener amqp0-9-1",
            f"Asking node {NODE} if there's an active listener for protocol amqp0-9-1 ...\n"
            f"A listener for protocol amqp is running on node {NODE}.\n",
            {"result": "ok", "node": NODE, "protocol": "amqp"},
        ),
        (
            "check_running",
            f"Checking if RabbitMQ is running on node {NODE} ...\n"
            f"RabbitMQ on node {NODE} is fully booted and running\n",
            {"message": f"RabbitMQ on node {NODE} is fully booted and running"},
        ),
        (
            "is_running",
            f"Asking node {NODE} for its status ...\nRabbitMQ on node {NODE} is fully booted and running\n",
            {"message": f"RabbitMQ on node {NODE} is fully booted and running", "result": True},
        ),
        (
            "is_booting",
            f"Asking node {NODE} for its boot status ...\nRabbitMQ on node {NODE} is fully booted "
            "(check with is_running), stopped or has not started booting yet\n",
            {
                "message": f"RabbitMQ on node {NODE} is fully booted (check with is_running), stopped or has "
                "not started booting yet",
                "result": False,
            },
        ),
    ],
)
def test_what_is_well(run: Run, words: str, output: str, value: Any) -> None:
    assert run(*words.split()) == (0, output, "")
    code, text, _ = run(*words.split(), "--formatter", "json")
    assert (code, json.loads(text)) == (0, value)


def test_alarms(run: Run, fake: FakeNode) -> None:
    fake.answers["cluster_status"] = {"alarms": [DISK, MEMORY]}
    here, there = f"Memory alarm on node {NODE}", "Free disk space alarm on node n2@h"
    assert run("check_alarms") == (69, ASKING, f"{here}\n{there}\n")
    assert run("check_local_alarms") == (69, ASKING, f"Error:\n{here}\n")
    assert run("-q", "alarms") == (0, f"{here}\n{there}\n", "")
    code, output, error = run("check_alarms", "--formatter", "json")
    assert (code, output) == (69, "")
    assert json.loads(error) == {
        "result": "error",
        "local": [here],
        "global": [there],
        "message": f"Node {NODE} reported alarms",
    }
    fake.answers["cluster_status"] = {"alarms": [DISK]}
    assert run("-q", "check_local_alarms")[0] == 0
    assert run("-q", "node_health_check")[0] == 0
    fake.answers["cluster_status"] = {"alarms": [MEMORY]}
    assert run("-q", "node_health_check")[0] == 70


def test_what_does_not_listen(run: Run) -> None:
    code, _, error = run("check_port_listener", "1")
    assert (code, error) == (
        69,
        f"No listener for port 1 is active on node {NODE}. "
        "Found listeners that use the following ports: 5672, 15672\n",
    )
    code, _, error = run("check_port_listener", "1", "--formatter", "json")
    assert json.loads(error) == {
        "result": "error",
        "missing": "1",
        "ports": [15672, 5672],
        "listeners": LISTENERS,
    }
    assert run("check_protocol_listener", "mqtt")[::2] == (
        69,
        f"Error:\nNo listener for protocol mqtt is active on node {NODE}. "
        "Found listeners for the following protocols: amqp, http\n",
    )
    for port in ("0", "x", "-1", "9" * 30):
        assert run("check_port_listener", port)[0] == 65


@pytest.mark.real
def test_connectivity(run: Run, fake: FakeNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        fake.answers["status"] = {
            "is_running": True,
            "listeners": [{**LISTENERS[1], "port": port}],
        }
        assert run("-q", "check_port_connectivity") == (
            0,
            f"Successfully connected to ports {port} on node {NODE}.\n",
            "",
        )
    assert run("-q", "check_port_connectivity")[0] == 69


@pytest.mark.parametrize(
    "words",
    [
        "check_alarms",
        "check_local_alarms",
        "check_store_damage",
        "alarms",
        "listeners",
        "check_port_listener 1",
        "check_protocol_listener amqp",
        "check_port_connectivity",
        "node_health_check",
        "memory_breakdown",
        "os_env",
        "report",
    ],
)
def test_while_the_broker_is_stopped(run: Run, fake: FakeNode, words: str) -> None:
    """management §3.5: 64, and how to start it."""
    fake.answers["status"] = {"is_running": False, "listeners": []}
    code, output, error = run(*words.split())
    assert (code, output) == (64, "")
    assert error.startswith("Error: this command requires the 'rabbit' app to be running on the target node.")


def test_running_while_it_is_stopped(run: Run, fake: FakeNode) -> None:
    """Only check_running fails."""
    fake.answers["status"] = {"is_running": False, "is_booting": True}
    text = f"RabbitMQ on node {NODE} is not running or has not fully booted yet (check with is_booting)"
    assert run("-q", "check_running") == (69, "", f"Error:\n{text}\n")
    assert run("-q", "is_running") == (0, f"{text}\n", "")
    assert run("-q", "is_booting") == (0, f"RabbitMQ on node {NODE} is undergoing boot\n", "")


def test_critical_queues(run: Run, fake: FakeNode) -> None:
    name = "check_if_node_is_mirror_sync_critical"
    fake.answers[name] = {"is_single": True, "queues": [], "what": "", "bad": ""}
    assert run("-q", name)[1] == (
        f"Node {NODE} seems to be the only one in a single node cluster, the check does not apply\n"
    )
    assert json.loads(run(name, "--formatter", "json")[1]) == {
        "result": "ok",
        "message": "Target node seems to be the only one in a single node cluster, the check does not apply",
    }
    queue = {"name": "q", "readable_name": "queue 'q' in vhost '/'"}
    what = "classic mirrored queues without online synchronised mirrors"
    fake.answers[name] = {"is_single": False, "queues": [queue], "what": what, "bad": what}
    code, _, error = run("-q", name)
    assert (code, "queue 'q' in vhost '/'" in error) == (69, True)
    fake.answers[name] = {"is_single": False, "queues": [], "what": what, "bad": what}
    assert run("-q", name) == (0, f"Node {NODE} reported no {what}\n", "")


def test_certificates(run: Run, fake: FakeNode) -> None:
    fake.answers["check_certificate_expiration"] = {"expiring": []}
    assert run("-q", "check_certificate_expiration") == (
        0,
        "No certificates are expiring within 4 weeks.\n",
        "",
    )
    run("check_certificate_expiration", "--within", "2", "--unit", "months")
    assert [asked for _, asked in fake.asked] == [{"within_days": 28}, {"within_days": 60}]
    assert run("check_certificate_expiration", "--unit", "nope")[0] == 64
    fake.answers["check_certificate_expiration"] = {
        "expiring": [
            {
                "certfile": "/c.pem",
                "interface": "[::]",
                "port": 5671,
                "protocol": "amqp/ssl",
                "certfile_expires_on": "2026-01-01 00:00:00",
            }
        ]
    }
    code, _, error = run("-q", "check_certificate_expiration")
    assert (code, "/c.pem" in error) == (69, True)


def test_damaged_files(run: Run, fake: FakeNode) -> None:
    """The check lists the damaged files that the node names."""
    words = ("-q", "check_store_damage")
    assert run(*words) == (0, f"Node {NODE} reported no damaged files with messages\n", "")
    fake.answers["status"] = {"is_running": True, "listeners": [], "damaged_files": ["messages/1.rdq"]}
    code, output, error = run(*words)
    assert (code, output) == (69, "")
    assert "messages/1.rdq" in error
    code, _, error = run(*words, "--formatter", "json")
    assert (code, json.loads(error)["files"]) == (69, ["messages/1.rdq"])


def test_virtual_hosts(run: Run, fake: FakeNode) -> None:
    fake.answers["check_virtual_hosts"] = {"down": []}
    assert run("-q", "check_virtual_hosts")[1] == f"Node {NODE} reported all vhosts as running\n"
    fake.answers["check_virtual_hosts"] = {"down": ["v"]}
    assert run("-q", "check_virtual_hosts")[0] == 69
