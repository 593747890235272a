"""`fluffle ctl`: outputs, banners and exit codes as RabbitMQ 3.10.8's (management §3); the node only answers."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.ctl.commands import COMMANDS, ERLANG_ONLY, NOT_BUILT, OTHER_WAY
from node.cli.ctl.main import main
from node.cli.ctl.tools import TOOLS, Tool, called_as
from node.cli.main import main as fluffle
from node.io import control
from node.io.control_server import ControlServer
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run

QUEUES = {
    "queues": [
        {"name": "a b", "messages": 3, "consumers": 0, "arguments": {}, "home": NODE, "vhost": "/"},
        {
            "name": "q2",
            "messages": None,
            "consumers": None,
            "arguments": {"x-max-length": 5},
            "state": "down",
        },
    ]
}
NOT_RUNNING = (
    "this command requires the 'rabbit' app to be running on the target node. "
    "Start it with 'rabbitmqctl start_app'."
)


# ---- what succeeds ----


@pytest.mark.parametrize(
    ("words", "asked", "output"),
    [
        ("stop_app", ("stop_app", {}), f"Stopping rabbit application on node {NODE} ...\n"),
        ("start_app", ("start_app", {}), f"Starting node {NODE} ...\n"),
        ("reset", ("reset", {}), f"Resetting node {NODE} ...\n"),
        ("force_reset", ("force_reset", {}), f"Forcefully resetting node {NODE} ...\n"),
        ("set_cluster_name foo", ("set_cluster_name", {"name": "foo"}), "Setting cluster name to foo ...\n"),
        (
            "join_cluster n2@x",
            ("join_cluster", {"node": "n2@x", "address": None, "type": "disc"}),
            f"Clustering node {NODE} with n2@x\n",
        ),
        (
            "join_cluster --ram n2",
            ("join_cluster", {"node": "n2@h", "address": None, "type": "ram"}),
            f"Clustering node {NODE} with n2@h\n",
        ),
        (
            "join_cluster --disc n2@x:7",
            ("join_cluster", {"node": "n2@x", "address": "x:7", "type": "disc"}),
            f"Clustering node {NODE} with n2@x\n",
        ),
        (
            "forget_cluster_node n2",
            ("forget_cluster_node", {"node": "n2@h"}),
            "Removing node n2@h from the cluster\n",
        ),
        (
            "change_cluster_node_type ram",
            ("change_cluster_node_type", {"type": "ram"}),
            f"Turning {NODE} into a ram node\n",
        ),
        (
            "change_cluster_node_type disk",
            ("change_cluster_node_type", {"type": "disc"}),
            f"Turning {NODE} into a disc node\n",
        ),
        ("await_startup", ("await_startup", {}), ""),
        (
            "await_online_nodes 3",
            ("await_online_nodes", {"count": 3}),
            f"Will wait for at least 3 nodes to join the cluster of {NODE}. Timeout: 300 seconds.\n",
        ),
        (
            "drain",
            ("drain", {}),
            f"Will put node {NODE} into maintenance mode. The node will no longer serve any client traffic!\n",
        ),
        (
            "revive",
            ("revive", {}),
            f"Will put node {NODE} back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas.\n",
        ),
        (
            "suspend_listeners",
            ("suspend_listeners", {}),
            f"Will suspend client connection listeners on node {NODE}. "
            "The node will no longer accept client connections!\n",
        ),
        (
            "resume_listeners",
            ("resume_listeners", {}),
            f"Will resume client connection listeners on node {NODE}. "
            "The node will now accept client connections\n",
        ),
        (
            "-t 5 ping",
            ("ping", {}),
            f"Will ping {NODE}. This only checks if the OS process is running and answers. "
            "Timeout: 5000 ms.\nPing succeeded\n",
        ),
    ],
)
def test_a_command(run: Run, fake: FakeNode, words: str, asked: tuple[str, object], output: str) -> None:
    """Banners are RabbitMQ's to the letter, but for `ping`, which names epmd there."""
    assert run(*words.split()) == (0, output, "")
    assert fake.asked == [asked]
    code, quiet, _ = run("-q", *words.split())
    assert (code, quiet) == (0, "Ping succeeded\n" if "ping" in words else "")
    assert fake.asked[1] == asked


def test_actions_in_json(run: Run) -> None:
    assert run("start_app", "--formatter", "json") == (0, '{"node":"n1@h","result":"ok"}\n', "")


def test_list_queues(run: Run, fake: FakeNode) -> None:
    fake.answers["list_queues"] = QUEUES
    banner = "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n"
    assert run("list_queues") == (0, f"{banner}name\tmessages\na b\t3\nq2\t\n", "")
    assert run("list_queues", "-q") == (0, "name\tmessages\na b\t3\nq2\t\n", "")
    assert run("list_queues", "-s") == (0, "a b\t3\nq2\t\n", "")
    assert run("list_queues", "--no-table-headers")[1] == f"{banner}a b\t3\nq2\t\n"
    _, output, _ = run("list_queues", "name,consumers", "state", "arguments", "home", "-q")
    assert output == (
        "name\tconsumers\tstate\targuments\thome\n"
        f'a b\t0\t\t[]\t{NODE}\nq2\t\tdown\t[{{"x-max-length",5}}]\t\n'
    )
    _, output, _ = run("list_queues", "messages", "policy", "--formatter", "json")
    assert json.loads(output) == [{"messages": 3, "policy": ""}, {"messages": None, "policy": ""}]
    assert run("list_queues", "--formatter", "csv")[1] == '"name","messages"\n"a b","3"\n"q2",""\n'


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("-p v", {"vhost": "v", "which": "all"}),
        ("--online", {"vhost": "/", "which": "online"}),
        ("--offline", {"vhost": "/", "which": "offline"}),
        ("--online --offline", {"vhost": "/", "which": "all"}),
        ("--local", {"vhost": "/", "which": "local"}),
    ],
)
def test_which_queues(run: Run, fake: FakeNode, words: str, arguments: dict[str, str]) -> None:
    fake.answers["list_queues"] = {"queues": []}
    vhost = "v" if "v" in words.split() else "/"
    banner = f"Timeout: 60.0 seconds ...\nListing queues for vhost {vhost} ...\n"
    assert run("list_queues", *words.split()) == (0, banner, "")
    assert fake.asked == [("list_queues", {**arguments, "columns": ["name", "messages"]})]


def test_reports(run: Run, fake: FakeNode) -> None:
    fake.answers = {"cluster_status": {"cluster_name": "c"}, "status": {"pid": 1}}
    assert run("cluster_status")[1].startswith(
        f"Cluster status of node {NODE} ...\n\x1b[1mBasics\x1b[0m\n\nCluster name: c\n"
    )
    assert run("status", "--unit", "mb")[1].startswith(
        f"Status of node {NODE} ...\n\x1b[1mRuntime\x1b[0m\n\n"
    )
    assert run("cluster_status", "--formatter", "json") == (0, '{"cluster_name":"c"}\n', "")


def test_join_of_a_member(run: Run, fake: FakeNode) -> None:
    fake.answers["join_cluster"] = {"already_member": True}
    assert run("-q", "join_cluster", "n2")[1] == "The node is already a member of this cluster\n"


def test_version_needs_no_node(capsys: "pytest.CaptureFixture[str]") -> None:
    for words in (["version"], ["--version"], ["version", "-q"]):
        assert main(words, {}) == 0
        assert capsys.readouterr().out == "3.10.8\n"
    assert main(["version", "--formatter", "json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "3.10.8"


def test_its_options_are_not_those_of_the_other_commands(capsys: "pytest.CaptureFixture[str]") -> None:
    for words in (("ctl", "--quiet", "version"), ("ctl", "version", "-q")):
        assert fluffle(words) == 0
        assert capsys.readouterr().out == "3.10.8\n"


@pytest.mark.real
def test_shutdown_waits_for_the_process(run: Run, fake: FakeNode) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    fake.answers["stop"] = {"pid": child.pid}
    code, output, _ = run("shutdown")
    assert code == 0
    assert output == (
        f"Shutting down RabbitMQ node {NODE} running at PID {child.pid}\n"
        f"Waiting for PID {child.pid} to terminate\n"
        f"RabbitMQ node {NODE} running at PID {child.pid} successfully shut down\n"
    )
    assert child.wait(1) == 0
    assert run("stop")[1] == f"Stopping and halting node {NODE} ...\n"


@pytest.mark.real
def test_shutdown_of_a_process_that_does_not_end(run: Run, fake: FakeNode) -> None:
    fake.answers["stop"] = {"pid": os.getpid()}
    assert run("shutdown", "-t", "0.1", "-q") == (
        75,
        "",
        f"Error:\nPID {os.getpid()} has not ended within 0.1 s\n",
    )
    assert run("shutdown", "--no-wait", "-q") == (0, "", "")


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("ping extra", 64, "too many arguments."),
        ("set_cluster_name", 64, "not enough arguments."),
        ("list_queues nope", 64, "Info key(s) nope are not supported"),
        ("list_queues name --nope", 64, "Invalid options for this command:\n--nope : "),
        ("ping --offline", 64, "Invalid options for this command:\n--offline : "),
        ("-t x ping", 64, "Invalid options for this command:\n-t : x"),
        ("ping --node", 64, "Invalid options for this command:\n--node : "),
        ("ping --formatter nope", 64, "there is no formatter nope; there are table, pretty_table, json"),
        ("ping --formatter csv", 64, "the formatter csv does not suit this command"),
        ("list_queues --online --local", 64, "only one of --online, --offline and --local may be given"),
        ("status --unit pb", 64, "unit 'pb' is not supported. Please use one of: bytes, kb, mb, gb, tb"),
        ("await_online_nodes x", 65, "Bad argument: Argument must be a positive integer"),
        ("await_online_nodes 0", 65, "Bad argument: Argument must be a positive integer"),
        ("await_online_nodes -1", 65, "Bad argument: Argument must be a positive integer"),
        ("join_cluster --ram --disc n2", 65, "Bad argument: The node type must be either disc or ram."),
        ("join_cluster n2:x", 65, "Bad argument: the node's address is NAME@HOST:PORT"),
        ("change_cluster_node_type foo", 65, "Bad argument: The node type must be either disc or ram."),
    ],
)
def test_a_line_that_makes_no_sense(run: Run, words: str, code: int, says: str) -> None:
    got, output, error = run(*words.split())
    name = next(word for word in words.split() if word in COMMANDS)
    assert got == code
    assert error.startswith(f"Error (argument validation): {says}")
    assert f"\nArguments given:\n\t-n {NODE} " in error
    assert f"{words}\n\n\x1b[1mUsage\x1b[0m\n\nfluffle ctl [--node <node>]" in error
    assert f"[--quiet] {name}" in error
    assert "name\t" not in output


def test_a_node_in_the_wrong_state(run: Run, fake: FakeNode) -> None:
    fake.answers["list_queues"] = control.ControlError(64, NOT_RUNNING)
    code, output, error = run("list_queues")
    assert (code, output) == (64, "")
    own = NOT_RUNNING.replace("rabbitmqctl", "fluffle ctl")
    assert error.startswith(f"Error: {own}\nArguments given:\n\t-n {NODE}")
    assert error.endswith(" list_queues\n\n" + error[error.index("\x1b[1mUsage") :])


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (TOOLS["ctl"], "fluffle ctl"),
        (TOOLS["diagnostics"], "fluffle ctl"),
        (called_as("/usr/bin/rabbitmqctl"), "rabbitmqctl"),
        (called_as("rabbitmq-diagnostics"), "rabbitmqctl"),
    ],
)
@pytest.mark.parametrize("said_by_node", ["rabbitmqctl", "fluffle ctl"])
def test_texts_name_the_command_that_was_called(tool: Tool, name: str, said_by_node: str) -> None:
    text = f"Stop it with '{said_by_node} stop_app'."
    assert tool.in_its_words(text) == f"Stop it with '{name} stop_app'."


def test_what_the_node_refuses(run: Run, fake: FakeNode) -> None:
    text = "The node selected is not in the cluster."
    fake.answers["forget_cluster_node"] = control.ControlError(70, text)
    assert run("forget_cluster_node", "n9") == (
        70,
        "Removing node n9@h from the cluster\n",
        f"Error:\n{text}\n",
    )
    assert run("forget_cluster_node", "n9", "--formatter", "json") == (70, "", f"Error:\n{text}\n")


def test_a_timeout(run: Run, fake: FakeNode) -> None:
    fake.answers["list_queues"] = control.ControlTimeout("late")
    code, _, error = run("list_queues", "-t", "0")
    assert code == 75
    assert 0 < fake.timeouts[0] < 0.01  # what the node takes for a time
    assert error == f"Error: operation list_queues on node {NODE} timed out. Timeout value used: 0\n"


def test_a_node_that_is_not_there(run: Run, fake: FakeNode) -> None:
    fake.answers["ping"] = control.ControlUnreachable("no node runs on /d (No such file or directory)")
    code, output, error = run("ping")
    assert (code, output) == (69, "")
    assert error.startswith(
        f"Error: unable to perform an operation on node '{NODE}'. "
        "Please see diagnostics information and suggestions below.\n"
    )
    assert "\n * no node runs on /d (No such file or directory)\n" in error
    fake.answers["stop"] = fake.answers["ping"]
    assert run("stop", "--idempotent", "-q") == (0, "", "")


@pytest.mark.real
def test_await_startup_waits_for_a_node_that_is_not_there_yet(run: Run, fake: FakeNode) -> None:
    count = 0

    class Late(dict[str, Any]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal count
            count += 1
            return control.ControlUnreachable("not yet") if count < 4 else {}

    fake.answers = Late()
    assert run("await_startup") == (0, "", "")
    assert count == 4
    count = -1000
    assert run("await_startup", "-t", "0.2")[0] == 69


# ---- names of commands, help ----


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("clusterstatus", "cluster_status"),
        ("list_queue", "list_queues"),
        ("join_clustre", "join_cluster"),
        ("stopapp", "stop_app"),
    ],
)
def test_did_you_mean(run: Run, typed: str, meant: str) -> None:
    assert run(typed) == (64, "", f"\nCommand '{typed}' not found. \nDid you mean '{meant}'? \n\n")


def test_a_word_like_no_command(run: Run) -> None:
    code, output, error = run("zzz")
    assert (code, output) == (64, "")
    assert error.startswith("\nCommand 'zzz' not found. \n\n\x1b[1mUsage\x1b[0m\n")


def test_commands_that_cannot_be_or_are_not_yet(run: Run) -> None:
    """management §3.5: never silently 0."""
    assert run("eval", "1.") == (
        64,
        "",
        "\nCommand 'eval' needs Erlang, and there is none in this broker.\n\n",
    )
    code, _, error = run("decode")
    assert (code, error) == (
        64,
        "\nCommand 'decode' is RabbitMQ's, and this version does not have it yet.\n\n",
    )
    code, _, error = run("update_cluster_nodes", "n2")
    assert code == 64
    assert error.startswith("\nCommand 'update_cluster_nodes' is not needed: a node learns from the others ")
    assert not (ERLANG_ONLY | NOT_BUILT | OTHER_WAY.keys()) & COMMANDS.keys()


def test_without_a_command(capsys: "pytest.CaptureFixture[str]") -> None:
    assert main([], {}) == 64
    assert "Available commands:" in capsys.readouterr().err
    assert main(["--help"], {}) == 0
    assert "Available commands:" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, capsys: "pytest.CaptureFixture[str]") -> None:
    for words in (["help", name], [name, "--help"]):
        assert main(words, {}) == 0
        output = capsys.readouterr().out
        assert output.startswith("\n\x1b[1mUsage\x1b[0m\n\nfluffle ctl ") or name == "help"
    assert main(["help", "nope"], {}) == 64
    assert capsys.readouterr().err == "Error:\n\nCommand 'nope' not found.\n"


# ---- over a socket ----


@pytest.fixture
def node_on_a_socket(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Nodes that answer ping and status, in the registry of an environment; two have the same name."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    loop = asyncio.new_event_loop()
    ready, end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async def answer(operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
            if operation not in ("ping", "status"):
                raise control.ControlError(64, f"there is no operation {operation}")
            return {"is_running": True}

        servers = []
        for place, name in (
            ("n10@h", "n10@h"),
            ("n2@h", "n2@h"),
            ("a/n30", "n30@localhost"),
            ("b", "n30@localhost"),
        ):
            servers.append(ControlServer(str(tmp_path / place), answer))
            await servers[-1].start()
            control.register(name, servers[-1].data_dir, environ)
        (tmp_path / "a" / "cluster.json").write_text("{}")
        ready.set()
        await end.wait()
        for server in servers:
            await server.close()

    thread = threading.Thread(daemon=True, target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    yield environ
    loop.call_soon_threadsafe(end.set)
    thread.join(10)
    loop.close()


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "node"),
    [
        ((), "n2@h"),
        (("-n", "n10@h"), "n10@h"),
        (("--node", "n10"), "n10@h"),
        (("--data", "{}/n10@h"), "n10@h"),
        (("--data", "{}/a"), "n30@localhost"),
        (("--data", "{}/a", "-n", "n30"), "n30@localhost"),
        (("--data", "{}/b"), "n30@localhost"),
    ],
)
def test_which_node(
    node_on_a_socket: dict[str, str],
    tmp_path: Path,
    capsys: "pytest.CaptureFixture[str]",
    words: tuple[str, ...],
    node: str,
) -> None:
    """Without a name it is the first that runs; n2 comes before n10."""
    arguments = [word.format(tmp_path) for word in words]
    assert main([*arguments, "check_running"], node_on_a_socket) == 0
    assert capsys.readouterr().out == (
        f"Checking if RabbitMQ is running on node {node} ...\n"
        f"RabbitMQ on node {node} is fully booted and running\n"
    )


@pytest.mark.real
def test_a_name_that_several_have(
    node_on_a_socket: dict[str, str], tmp_path: Path, capsys: "pytest.CaptureFixture[str]"
) -> None:
    assert main(["-n", "n30", "ping"], node_on_a_socket) == 69
    said = capsys.readouterr().err
    assert "several nodes called n30@localhost run here: name one by --data DIR" in said
    assert {f"  {tmp_path}/a/n30", f"  {tmp_path}/b"} <= set(said.splitlines())


@pytest.mark.real
def test_a_name_that_nobody_has(
    node_on_a_socket: dict[str, str], capsys: "pytest.CaptureFixture[str]"
) -> None:
    assert main(["-n", "nobody@h", "ping"], node_on_a_socket) == 69
    assert "\n * this user runs no node called nobody@h on this machine\n" in capsys.readouterr().err


@pytest.mark.slow
def test_it_starts_fast(tmp_path: Path) -> None:
    """management §3.5: probes run it every few seconds. What is slow to import is not imported."""
    probe = (
        "import sys; from node.cli.main import main; main(['ctl', 'version']); "
        "heavy = {'asyncio', 'google.protobuf', 'pysyncobj', 'uvloop', 'ssl', 'logging', 'node.broker', 'node.app'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "3.10.8\n[]\n"


@pytest.mark.real
def test_a_stopped_node_goes_by_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The directory of a node knows whose it is; only without one the name is guessed from its path."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    data = tmp_path / "n5"
    (data / "raft").mkdir(parents=True)
    identity = data / "raft" / "node.json"
    for text, name in (
        ('{"format": 1, "name": "n7@elsewhere"}', "n7@elsewhere"),
        ("[]", "n5@"),
        ("{", "n5@"),
    ):
        identity.write_text(text)
        assert main(["--data", str(data), "status"], environ) == 69
        assert f"Consult server logs on node {name}" in capsys.readouterr().err
