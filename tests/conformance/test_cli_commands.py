"""management §3: the command line tools, the same lines for RabbitMQ's and for ours.

Each step is a command line, and what it prints and ends with on a live RabbitMQ 3.10.8; the names of nodes and their
ports are masked. Steps of a story build on each other.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pika
import pytest

from tests.kit.ports import free_ports
from tests.kit.rabbit_server import RabbitServer
from tests.kit.server_process import ROOT

IS_RABBITMQ: Final = os.environ.get("FLUFFLE_TEST_AGAINST") == "rabbitmq"
START_S: Final = 60

pytestmark = pytest.mark.slow


class Done(NamedTuple):
    """Holds the exit code and the output of a command line."""

    code: int
    output: str
    errors: str


class Tools:
    """The tools of one server. `run` a line of words, or of a list."""

    def __init__(self, directory: str, environ: Mapping[str, str], node: str, port: int) -> None:
        self._directory = directory
        self._environ = environ
        self.node = node
        self.port = port

    def run(self, line: "str | list[str]", standard_input: str = "") -> Done:
        """The first word is the tool; node and port are put for NODE and PORT."""
        tool, *words = line.split(" ") if isinstance(line, str) else line
        words = [word.replace("NODE", self.node).replace("PORT", str(self.port)) for word in words]
        done = subprocess.run(
            [f"{self._directory}/{tool}", *words],
            env=dict(self._environ),
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, self._masked(done.stdout), self._masked(done.stderr))

    def _masked(self, text: str) -> str:
        # RabbitMQ's tools show what they log themselves, too.
        text = re.sub(r"\n?\d\d:\d\d:\d\d\.\d+ \[.*\n", "", text)
        return text.replace(self.node, "NODE").replace(str(self.port), "PORT")


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    """Give the command-line tools of a server of our own."""
    if IS_RABBITMQ:
        server = RabbitServer({})
        yield Tools("/usr/lib/rabbitmq/bin", server._environment, server._node, server.port)
        server.stop()
        return
    directory = Path(tempfile.mkdtemp(prefix="fluffle-cli-"))
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(directory)}
    environ |= {"RABBITMQ_NODENAME": "cli@localhost", "PYTHONPATH": str(ROOT)}
    module = [sys.executable, "-m", "node"]
    subprocess.run([*module, "compat-links", str(directory / "bin")], cwd=ROOT, env=environ, check=True)
    (port,) = free_ports(1)  # the same one after stop_app and start_app
    start = ["start", "--data", str(directory / "n"), "--listen", f"127.0.0.1:{port}", "--management", "off"]
    process = subprocess.Popen([*module, *start], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(": node cli@localhost ready" in line for line in process.stdout), "it did not start"
        yield Tools(str(directory / "bin"), environ, "cli@localhost", port)
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(directory, ignore_errors=True)


Step = tuple[str, int, str, str]
"""A line, its exit code, standard output, standard error; where an error goes on with a usage, only its beginning."""

NO_USER = 'Error:\n{:no_such_user, "nouser"}\n'

STORIES: Final[dict[str, list[Step]]] = {
    "§3.2 users": [
        (
            "rabbitmqctl add_user u1 p1",
            0,
            'Adding user "u1" ...\nDone. Don\'t forget to grant the user permissions to some virtual hosts! '
            "See 'rabbitmqctl help set_permissions' to learn more.\n",
            "",
        ),
        (
            "rabbitmqctl add_user u1 p1",
            70,
            'Adding user "u1" ...\n',
            'Error:\nUser "u1" already exists\n',
        ),
        (
            "rabbitmqctl set_user_tags u1 management policymaker",
            0,
            'Setting tags for user "u1" to [management, policymaker] ...\n',
            "",
        ),
        (
            "rabbitmqctl set_user_tags nouser x",
            67,
            'Setting tags for user "nouser" to [x] ...\n',
            'Error:\nUser "nouser" does not exist\n',
        ),
        ("rabbitmqctl change_password u1 p2", 0, 'Changing password for user "u1" ...\n', ""),
        (
            "rabbitmqctl authenticate_user u1 p2",
            0,
            'Authenticating user "u1" ...\nSuccess\n',
            "",
        ),
        (
            "rabbitmqctl authenticate_user u1 bad",
            65,
            'Authenticating user "u1" ...\n',
            "Error:\nError: failed to authenticate user \"u1\"\nuser 'u1' - invalid credentials\n",
        ),
        ("rabbitmqctl clear_password nouser -q", 69, "", NO_USER),
        ('rabbitmqctl -q set_user_limits u1 {"max-connections":5}', 0, "", ""),
        (
            'rabbitmqctl -q set_user_limits u1 {"bogus":1}',
            69,
            "",
            'Error:\nUnrecognised terms [{<<"bogus">>,1}] in user-limits\n',
        ),
        (
            "rabbitmqctl list_user_limits --user u1",
            0,
            'Listing limits for user "u1" ...\n{"max-connections":5}\n',
            "",
        ),
        (
            "rabbitmqctl list_user_limits --global",
            0,
            'Listing limits for all users ...\nuser\tlimits\nu1\t{"max-connections":5}\n',
            "",
        ),
        ("rabbitmqctl -q delete_user u1", 0, "", ""),
        ("rabbitmqctl -q delete_user u1", 67, "", 'Error:\nUser "u1" does not exist\n'),
    ],
    "§3.2 vhosts and permissions": [
        ("rabbitmqctl add_user u2 p", 0, "*", ""),
        ("rabbitmqctl add_vhost v1", 0, 'Adding vhost "v1" ...\n', ""),
        ("rabbitmqctl add_vhost v1", 0, 'Adding vhost "v1" ...\n', ""),
        (
            "rabbitmqctl -q add_vhost v3 --default-queue-type nope",
            69,
            "",
            "Error:\ninvalid_queue_type\n",
        ),
        (
            "rabbitmqctl list_vhosts name tracing",
            0,
            "Listing vhosts ...\nname\ttracing\n/\tfalse\nv1\tfalse\n",
            "",
        ),
        (
            "rabbitmqctl set_permissions -p v1 u2 .* ^a [b]",
            0,
            'Setting permissions for user "u2" in vhost "v1" ...\n',
            "",
        ),
        (
            "rabbitmqctl -q set_permissions -p v1 nouser .* .* .*",
            67,
            "",
            "Error:\nUser nouser does not exist\n",
        ),
        (
            "rabbitmqctl -q set_permissions -p nov u2 .* .* .*",
            69,
            "",
            "Error:\nVirtual host nov does not exist\n",
        ),
        (
            "rabbitmqctl list_permissions -p v1",
            0,
            'Listing permissions for vhost "v1" ...\nuser\tconfigure\twrite\tread\nu2\t.*\t^a\t[b]\n',
            "",
        ),
        (
            "rabbitmqctl list_permissions -p nov",
            65,
            'Listing permissions for vhost "nov" ...\n',
            "Virtual host 'nov' does not exist\n",
        ),
        ("rabbitmqctl -q list_user_permissions nouser", 69, "", NO_USER),
        (
            'rabbitmqctl -q set_vhost_limits -p v1 {"bogus":5}',
            69,
            "",
            'Error:\nValidation failed\n\nUnrecognised terms [{<<"bogus">>,5}] in limits\n\n',
        ),
        ("rabbitmqctl -q clear_vhost_limits -p v1", 69, "", "Error:\nParameter does not exist\n"),
        (
            "rabbitmqctl trace_on -p v1",
            0,
            'Starting tracing for vhost "v1" ...\nTrace enabled for vhost v1\n',
            "",
        ),
        ("rabbitmqctl -q delete_vhost v1", 0, "", ""),
        ("rabbitmqctl -q delete_vhost v1", 65, "", "Virtual host 'v1' does not exist\n"),
        ("rabbitmqctl -q delete_user u2", 0, "", ""),
    ],
    "§3.2 parameters and policies": [
        (
            "rabbitmqctl -q set_parameter nocomp name 1",
            69,
            "",
            "Error:\nValidation failed\n\ncomponent nocomp not found\n\n",
        ),
        (
            "rabbitmqctl -q set_parameter vhost-limits limits notjson",
            69,
            "",
            "Error:\nJSON decoding error. Reason: badarg\n",
        ),
        ('rabbitmqctl -q set_operator_policy op ^h {"max-length":50}', 0, "", ""),
        (
            "rabbitmqctl -q list_parameters",
            0,
            'component\tname\tvalue\noperator_policy\top\t{"pattern":"^h","definition":{"max-length":50},'
            '"priority":0,"apply-to":"all"}\n',
            "",
        ),
        ("rabbitmqctl -q clear_operator_policy op", 0, "", ""),
        ("rabbitmqctl -q list_parameters", 0, "\n", ""),
        ("rabbitmqctl -q clear_global_parameter nope", 69, "", "Error:\nParameter does not exist\n"),
    ],
    "§3.2 checks": [
        (
            "rabbitmq-diagnostics check_running",
            0,
            "Checking if RabbitMQ is running on node NODE ...\n"
            "RabbitMQ on node NODE is fully booted and running\n",
            "",
        ),
        (
            "rabbitmq-diagnostics check_port_listener PORT",
            0,
            "Asking node NODE if there's an active listener on port PORT ...\n"
            "A listener for port PORT is running on node NODE.\n",
            "",
        ),
        (
            "rabbitmq-diagnostics check_protocol_listener amqp091 --formatter json",
            0,
            '{"node":"NODE","protocol":"amqp","result":"ok"}\n',
            "",
        ),
        ("rabbitmq-diagnostics check_port_listener 1 --formatter json", 69, "", "*"),
        ("rabbitmq-diagnostics check_local_alarms --formatter json", 0, '{"result":"ok"}\n', ""),
        ("rabbitmqctl -q set_vm_memory_high_watermark absolute 1", 0, "", ""),
        (
            "rabbitmq-diagnostics check_alarms",
            69,
            "Asking node NODE to report any local resource alarms ...\n",
            "Memory alarm on node NODE\n",
        ),
        ("rabbitmqctl -q set_vm_memory_high_watermark 0.4", 0, "", ""),
        (
            "rabbitmq-diagnostics -q check_virtual_hosts",
            0,
            "Node NODE reported all vhosts as running\n",
            "",
        ),
        (
            "rabbitmq-queues -q check_if_node_is_mirror_sync_critical",
            0,
            "Node NODE seems to be the only one in a single node cluster, the check does not apply\n",
            "",
        ),
        ("rabbitmq-diagnostics -q server_version", 0, "3.10.8\n", ""),
        (
            "rabbitmqctl list_vhosts nope",
            64,
            "",
            "Error (argument validation): Info key(s) nope are not supported\nArguments given:\n"
            "\tlist_vhosts nope\n\n\x1b[1mUsage\x1b[0m\n",
        ),
        ("rabbitmqctl delete_queue nope -q", 64, "", "Error:\nQueue not found\n"),
        ("rabbitmqctl purge_queue nope -q", 69, "", "Error:\nnot_found\n"),
    ],
    "§3.2 cluster and maintenance": [
        ("rabbitmqctl set_cluster_name c1", 0, "Setting cluster name to c1 ...\n", ""),
        (
            "rabbitmqctl await_online_nodes 1",
            0,
            "Will wait for at least 1 nodes to join the cluster of NODE. Timeout: 300 seconds.\n",
            "",
        ),
        (
            "rabbitmqctl await_online_nodes 2 -t 1",
            70,
            "Will wait for at least 2 nodes to join the cluster of NODE. Timeout: 1 seconds.\n",
            "Error:\nError: timed out while waiting. Not enough nodes joined NODE's cluster.\n",
        ),
        (
            "rabbitmq-upgrade await_online_synchronized_mirror -t 5",
            0,
            "Will wait for a synchronised mirror be online for all classic mirrored queues for 5 seconds...\n"
            "Target node seems to be the only one in a single node cluster, the command does not apply\n",
            "",
        ),
        ("rabbitmq-upgrade -q await_online_synchronized_mirror", 0, "", ""),
        (
            "rabbitmq-upgrade await_online_quorum_plus_one -t 5",
            0,
            "Will wait for a quorum + 1 of nodes to be online for all quorum queues for 5 seconds...\n"
            "Target node seems to be the only one in a single node cluster, the command does not apply\n",
            "",
        ),
        (
            "rabbitmq-upgrade drain",
            0,
            "Will put node NODE into maintenance mode. The node will no longer serve any client traffic!\n",
            "",
        ),
        (
            "rabbitmq-upgrade revive",
            0,
            "Will put node NODE back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas.\n",
            "",
        ),
        (
            "rabbitmq-upgrade post_upgrade",
            0,
            "Executing post upgrade tasks...\nRebalancing queue masters...\n\n",
            "",
        ),
        (
            "rabbitmq-queues rebalance nope",
            69,
            "",
            "Error:\ntype nope is not supported. Try one of all, classic, quorum.\n",
        ),
        ("rabbitmqctl enable_feature_flag all", 0, "Enabling all feature flags ...\n", ""),
        (
            "rabbitmqctl enable_feature_flag nope",
            64,
            'Enabling feature flag "nope" ...\n',
            "Error:\nThis feature flag is not supported by node NODE\n",
        ),
    ],
    "§3.2 policies": [
        (
            'rabbitmqctl set_policy p1 ^a {"max-length":5} --priority 2 --apply-to queues',
            0,
            'Setting policy "p1" for pattern "^a" to "{"max-length":5}" with priority "2" for vhost "/" ...\n',
            "",
        ),
        (
            "rabbitmqctl list_policies",
            0,
            'Listing policies for vhost "/" ...\n'
            'vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n/\tp1\t^a\tqueues\t{"max-length":5}\t2\n',
            "",
        ),
        (
            'rabbitmqctl set_policy p2 ^a {"nope":5}',
            69,
            'Setting policy "p2" for pattern "^a" to "{"nope":5}" with priority "0" for vhost "/" ...\n',
            'Error:\nValidation failed\n\n[{<<"nope">>,5}] are not recognised policy settings\n\n',
        ),
        ("rabbitmqctl clear_policy p1", 0, 'Clearing policy "p1" on vhost "/" ...\n', ""),
        (
            "rabbitmqctl clear_policy p1",
            69,
            'Clearing policy "p1" on vhost "/" ...\n',
            "Error:\nParameter does not exist\n",
        ),
    ],
    "§3.2 operations": [
        ("rabbitmqctl set_log_level debug", 0, 'Setting log level to "debug" ...\n', ""),
        (
            "rabbitmqctl set_log_level nope",
            69,
            "",
            "Error:\nlevel nope is not supported. Try one of debug, info, warning, error, critical, none\n",
        ),
        ("rabbitmqctl set_log_level info", 0, 'Setting log level to "info" ...\n', ""),
        (
            "rabbitmqctl set_disk_free_limit mem_relative 0.5",
            0,
            "Setting disk free limit on NODE to 0.5 times the total RAM ...\n",
            "",
        ),
        (
            "rabbitmqctl set_disk_free_limit 50MB",
            0,
            "Setting disk free limit on NODE to 50MB bytes ...\n",
            "",
        ),
        (
            "rabbitmqctl close_all_connections --vhost / bye",
            0,
            "Closing all connections in vhost /, reason: bye...\nClosed 0 connections\n",
            "",
        ),
        (
            "rabbitmqctl close_all_connections --global bye",
            0,
            "Closing all connections to node NODE (across all vhosts), reason: bye...\nClosed 0 connections\n",
            "",
        ),
        (
            "rabbitmqctl sync_queue nope",
            69,
            "Synchronising queue 'nope' in vhost '/' ...\n",
            "Error:\nnot_found\n",
        ),
        (
            "rabbitmqctl cancel_sync_queue nope",
            69,
            "Stopping synchronising queue 'nope' in vhost '/' ...\n",
            "Error:\nnot_found\n",
        ),
        (
            'rabbitmqctl set_global_parameter a {"b":1}',
            0,
            'Setting global runtime parameter "a" to "{"b":1}" ...\n',
            "",
        ),
        ("rabbitmqctl clear_global_parameter a", 0, 'Clearing global runtime parameter "a" ...\n', ""),
    ],
    "§3.5 while the broker is stopped": [
        ("rabbitmqctl -q stop_app", 0, "", ""),
        ("rabbitmqctl -q list_users", 64, "", "Error: this command requires the 'rabbit' app to be running"),
        (
            "rabbitmqctl -q add_user x y",
            64,
            "",
            "Error: this command requires the 'rabbit' app to be running",
        ),
        (
            "rabbitmq-diagnostics -q check_alarms",
            64,
            "",
            "Error: this command requires the 'rabbit' app to be running",
        ),
        (
            "rabbitmq-diagnostics -q check_running",
            69,
            "",
            "Error:\nRabbitMQ on node NODE is not running or has not fully booted yet (check with is_booting)\n",
        ),
        ("rabbitmq-diagnostics -q server_version", 0, "3.10.8\n", ""),
        ("rabbitmqctl -q start_app", 0, "", ""),
        ("rabbitmqctl -q await_startup", 0, "", ""),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story(tools: Tools, story: str) -> None:
    for line, code, output, errors in STORIES[story]:
        done = tools.run(line)
        assert done.code == code, (line, done)
        assert output in ("*", done.output), (line, done)
        is_same = done.errors == errors if errors.endswith("\n") or not errors else True
        assert is_same or done.errors.startswith(errors) or errors == "*", (line, done)


@pytest.fixture
def connection(tools: Tools) -> Iterator[pika.BlockingConnection]:
    """A client with a queue, a binding with arguments and a consumer."""
    found = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", tools.port, heartbeat=0))
    channel = found.channel()
    channel.queue_declare("cli q", arguments={"x-max-length": 5})
    channel.exchange_declare("cli-h", "headers")
    channel.queue_bind("cli q", "cli-h", "", {"x-match": "all", "k": 1})
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("cli q", lambda *_: None, consumer_tag="tag")
    yield found
    if found.is_open:
        found.close()


Rows = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def rows(tools: Tools) -> Rows:
    """The rows of a list, as JSON."""

    def listed(line: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(tools.run(f"{line} --formatter json").output)
        return found

    return listed


def test_lists(tools: Tools, connection: pika.BlockingConnection, rows: Rows) -> None:
    """§3.3: default columns, types of values."""
    assert rows("rabbitmqctl list_queues name messages arguments") == [
        {"name": "cli q", "messages": 0, "arguments": [["x-max-length", "signedint", 5]]}
    ]
    assert tools.run("rabbitmqctl -q list_queues name arguments").output == (
        'name\targuments\ncli q\t[{"x-max-length",5}]\n'
    )
    assert rows("rabbitmqctl list_bindings")[-1] == {
        "source_name": "cli-h",
        "source_kind": "exchange",
        "destination_name": "cli q",
        "destination_kind": "queue",
        "routing_key": "",
        "arguments": [["k", "signedint", 1], ["x-match", "longstr", "all"]],
    }
    (found,) = rows("rabbitmqctl list_connections user vhost peer_host protocol state channels ssl")
    assert found == {
        "user": "guest",
        "vhost": "/",
        "peer_host": [127, 0, 0, 1],
        "protocol": [0, 9, 1],
        "state": "running",
        "channels": 1,
        "ssl": False,
    }
    (found,) = rows("rabbitmqctl list_channels number user consumer_count prefetch_count confirm")
    assert found == {
        "number": 1,
        "user": "guest",
        "consumer_count": 1,
        "prefetch_count": 7,
        "confirm": False,
    }
    (found,) = rows("rabbitmqctl list_consumers")
    assert {**found, "channel_pid": ""} == {
        "queue_name": "cli q",
        "channel_pid": "",
        "consumer_tag": "tag",
        "ack_required": True,
        "prefetch_count": 7,
        "active": True,
        "arguments": [],
    }
    assert {"name": "amq.rabbitmq.trace", "type": "topic"} in rows("rabbitmqctl list_exchanges")


def test_a_connection_is_closed_by_its_pid(
    tools: Tools, connection: pika.BlockingConnection, rows: Rows
) -> None:
    """§3.5: what list_connections calls a pid."""
    pid = tools.run("rabbitmqctl -s list_connections pid").output.strip()
    # The name of the node was masked.
    done = tools.run(["rabbitmqctl", "close_connection", pid, "bye now"])
    assert (done.code, done.output) == (0, f"Closing connection {pid}, reason: bye now...\n")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(5)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        320,
        "CONNECTION_FORCED - bye now",
    )
    done = tools.run(["rabbitmqctl", "-q", "close_connection", "<nope>", "x"])
    assert (done.code, done.errors) == (69, 'Error:\nError:\n{:invalid_pid_syntax, "<nope>"}\n')


def test_definitions_come_back(tools: Tools, tmp_path: Path) -> None:
    """§2.2, §3.2: what was exported can be imported."""
    file = tmp_path / "d.json"
    assert tools.run("rabbitmqctl -q add_vhost defs").code == 0
    assert tools.run(f"rabbitmqctl -q export_definitions {file}").code == 0
    document = json.loads(file.read_text())
    assert "defs" in [each["name"] for each in document["vhosts"]]
    assert tools.run("rabbitmqctl -q delete_vhost defs").code == 0
    done = tools.run("rabbitmqctl import_definitions", file.read_text())
    assert (done.code, done.output.splitlines()[0]) == (
        0,
        "Importing definitions in JSON from standard input ...",
    )
    assert "defs" in tools.run("rabbitmqctl -q list_vhosts").output.splitlines()
    assert tools.run("rabbitmqctl -q delete_vhost defs").code == 0
