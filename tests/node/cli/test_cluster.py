"""`fluffle cluster` with nodes that only say that they are ready."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.cli.cluster import BadPlan, NodePlan, make_plan
from node.cli.main import main
from node.cli.ports import why_not
from tests.kit.patience import wait_until
from tests.kit.ports import free_base_port

ROOT = Path(__file__).parents[3]
WAIT_S = 20.0

FAKE = """
import os, signal, sys, time
arguments = sys.argv[1:]
name, data = arguments[arguments.index("--name") + 1], arguments[arguments.index("--data") + 1]
how = os.environ.get("HOW_" + name.partition("@")[0], "")
with open(os.path.join(data, "started"), "a") as file:
    file.write(" ".join(arguments) + "|" + os.environ["FLUFFLE_CLUSTER_NODES"] + "|" + str(os.getpid()) + chr(10))
def stop(*_):
    if how == "deaf":
        return
    os.write(2, b"stopping\\n")  # not print: the signal may come in the middle of another one's flush
    sys.exit(74 if how == "full" else 0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda *_: os._exit(99))
print("log of", name, file=sys.stderr, flush=True)
if how == "broken":
    sys.exit(78)
if how != "slow":
    print(f"fluffle: node {name} ready, amqp on here", flush=True)
while True:
    time.sleep(0.05)
"""

RUN = """
import sys
from node.cli import supervisor
from node.cli.main import main
plain = supervisor.supervise
supervisor.supervise = lambda plan: plain(plan, (sys.executable, "-c", sys.argv[1]))
sys.exit(main(["cluster", *sys.argv[2:]]))
"""


class Running:
    """A `fluffle cluster` process and what it has written."""

    def __init__(self, directory: Path, *arguments: str, **environ: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, FAKE, "--data", str(directory), *arguments],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(daemon=True, target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))

    def await_line(self, part: str) -> str:
        found = wait_until(
            lambda: [line for line in list(self.lines) if part in line], lambda: str(self.lines)
        )
        return str(found[0])

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(WAIT_S)
        self.reader.join(WAIT_S)
        return code

    def pids(self, node: str) -> list[int]:
        return [
            int(line.rpartition("|")[2])
            for line in (self.directory / node / "started").read_text().splitlines()
        ]

    def ask(self, capsys: "pytest.CaptureFixture[str]", *words: str) -> tuple[int, str]:
        code = main(["cluster", *words, "--data", str(self.directory)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str, base_port: int | None = None, **environ: str) -> Running:
        directory = tmp_path / "a directory whose name is longer than a socket's address" / ("x" * 60)
        port = free_base_port() if base_port is None else base_port
        ports = () if "--base-port" in arguments or port == 0 else ("--base-port", str(port))
        started.append(Running(directory, *ports, *arguments, **environ))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.process.kill()
        each.process.wait()
        each.reader.join()


# ---- the plan ----


def test_three_nodes_on_the_usual_ports(tmp_path: Path) -> None:
    plan = make_plan(str(tmp_path), None, None, None)
    assert [(node.full_name, node.port, node.peer_port) for node in plan.nodes] == [
        ("n1@localhost", 5672, 25672),
        ("n2@localhost", 5673, 25673),
        ("n3@localhost", 5674, 25674),
    ]
    assert plan.data_dir(plan.nodes[1]) == str(tmp_path / "n2")


def test_ram_nodes_by_name_or_number(tmp_path: Path) -> None:
    plan = make_plan(str(tmp_path), 4, 6000, ["n2", "4"])
    assert plan.nodes[1:] == (
        NodePlan("n2", 6001, True),
        NodePlan("n3", 6002, False),
        NodePlan("n4", 6003, True),
    )


@pytest.mark.parametrize(
    ("nodes", "base_port", "ram", "says"),
    [
        (0, None, None, "--nodes 0: not allowed; allowed: from 1 to 32"),
        (33, None, None, "--nodes 33: not allowed"),
        (3, 45534, None, "--base-port 45534: not allowed; allowed: from 1 to 45533"),
        (3, 0, None, "--base-port 0: not allowed"),
        (3, None, ["n1"], "--ram n1: the first node makes the cluster, and a RAM node cannot"),
        (3, None, ["n4"], "--ram n4: there is no such node; there are n1, n2, n3"),
        (3, None, ["x"], "--ram nx: there is no such node"),
    ],
)
def test_a_bad_plan(
    tmp_path: Path, nodes: int, base_port: int | None, ram: list[str] | None, says: str
) -> None:
    with pytest.raises(BadPlan, match=says.replace("(", r"\(")):
        make_plan(str(tmp_path), nodes, base_port, ram)


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": "3", "base_port": 1, "ram": []}', '{"nodes": 3}'])
def test_damaged_settings_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(BadPlan, match=r"cluster\.json: is damaged") as caught:
        make_plan(str(tmp_path), None, None, None)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("words", [["start"], ["start", "n1", "n2"], ["status", "n1"], ["restart"]])
def test_a_bad_action(words: list[str], tmp_path: Path, capsys: "pytest.CaptureFixture[str]") -> None:
    assert main(["cluster", "--data", str(tmp_path), *words]) == 64
    assert "allowed: fluffle cluster start NODE" in capsys.readouterr().err


@pytest.mark.real
def test_nobody_runs_it(tmp_path: Path, capsys: "pytest.CaptureFixture[str]") -> None:
    assert main(["cluster", "status", "--data", str(tmp_path)]) == 69
    assert capsys.readouterr().err.startswith(f"fluffle: no cluster runs on {tmp_path}; ")


# ---- processes ----


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ready_summary_and_stop(launch: Callable[..., Running], number: signal.Signals) -> None:
    base = free_base_port()
    run = launch("--ram", "3", "--", "--management", "off", base_port=base)
    summary = run.await_line("cluster of 3 ready")
    assert summary == (
        f"fluffle: cluster of 3 ready, amqp on 127.0.0.1:{base}, 127.0.0.1:{base + 1}, 127.0.0.1:{base + 2};"
        " Ctrl-C stops it"
    )
    assert {"n1 | log of n1@localhost", "n3 | fluffle: node n3@localhost ready, amqp on here"} <= set(
        run.lines
    )
    arguments, addresses, _ = (run.directory / "n3" / "started").read_text().split("|")
    ipv6 = "" if why_not("::1", 0) else f" --listen [::1]:{base + 2}"
    assert arguments == (
        f"--name n3@localhost --data {run.directory}/n3 --listen 127.0.0.1:{base + 2}"
        f" --peer 127.0.0.1:{base + 20002}{ipv6} --ram --management off"
    )
    assert addresses == ",".join(f"n{n}@localhost:{base + 19999 + n}" for n in (1, 2, 3))
    run.process.send_signal(number)
    assert run.end() == 0
    assert {f"n{n} | stopping" for n in (1, 2, 3)} <= set(run.lines)
    assert not any(is_alive(pid) for n in (1, 2, 3) for pid in run.pids(f"n{n}"))


@pytest.mark.slow
def test_a_killed_node_stays_down_until_it_is_started(
    launch: Callable[..., Running], capsys: "pytest.CaptureFixture[str]"
) -> None:
    run = launch()
    run.await_line("cluster of 3 ready")
    os.kill(run.pids("n2")[0], signal.SIGKILL)
    line = run.await_line("stays down")
    assert line == (
        "fluffle: n2 was killed by signal 9 (SIGKILL), and stays down; "
        f"`fluffle cluster start n2 --data {run.directory}` starts it again"
    )
    assert len(run.pids("n2")) == 1
    os.kill(run.pids("n3")[0], signal.SIGRTMIN + 1)
    unnamed = f"n3 was killed by signal {signal.SIGRTMIN + 1}, and stays down"
    assert unnamed in run.await_line("n3 was killed")
    code, status = run.ask(capsys, "status")
    assert code == 0
    states = {row.split()[0]: " ".join(row.split("  ")[1:]) for row in status.splitlines()[1:]}
    assert states["n2@localhost"].startswith("was killed by signal 9 (SIGKILL)")
    assert states["n1@localhost"].startswith("running")
    code, text = run.ask(capsys, "status", "--json")
    first, second, _ = json.loads(text)["nodes"]
    assert (first["state"], first["amqp"].partition(":")[0]) == ("running", "127.0.0.1")
    assert (second["node"], second["pid"]) == ("n2@localhost", None)
    code, answer = run.ask(capsys, "start", "n2")
    assert (code, answer.startswith("n2 is ready, amqp on 127.0.0.1:")) == (0, True)
    assert run.ask(capsys, "start", "n2@localhost") == (0, "n2 is running already\n")
    assert len(run.pids("n2")) == 2
    assert run.ask(capsys, "start", "n9") == (64, "fluffle: there is no node n9; there are n1, n2, n3\n")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0


@pytest.mark.slow
def test_stop_one_then_all_from_another_terminal(
    launch: Callable[..., Running], capsys: "pytest.CaptureFixture[str]"
) -> None:
    run = launch()
    run.await_line("cluster of 3 ready")
    assert run.ask(capsys, "stop", "n1") == (0, "n1 has stopped\n")
    assert not is_alive(run.pids("n1")[0])
    assert run.ask(capsys, "stop", "n1") == (0, "n1 has stopped already\n")
    assert run.ask(capsys, "stop") == (0, "stopping\n")
    assert run.end() == 0
    assert not any("stays down" in line for line in run.lines)


@pytest.mark.slow
def test_a_second_signal_kills(launch: Callable[..., Running]) -> None:
    run = launch(HOW_n2="deaf")
    run.await_line("cluster of 3 ready")
    run.process.send_signal(signal.SIGINT)
    run.await_line("Ctrl-C again kills")
    wait_until(lambda: not is_alive(run.pids("n1")[0]))
    assert is_alive(run.pids("n2")[0])
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 70
    assert "fluffle: n2 is killed" in run.lines
    assert not is_alive(run.pids("n2")[0])


@pytest.mark.slow
def test_a_node_that_could_not_write_all_decides_the_exit_code(launch: Callable[..., Running]) -> None:
    run = launch(HOW_n3="full")
    run.await_line("cluster of 3 ready")
    run.process.terminate()
    assert run.end() == 74


@pytest.mark.slow
def test_a_node_that_does_not_start_stops_the_others(launch: Callable[..., Running]) -> None:
    run = launch(HOW_n2="broken")
    assert run.end() == 78
    assert "fluffle: n2 ended with exit code 78 before it was ready: the cluster is stopped" in run.lines
    with contextlib.suppress(FileNotFoundError):  # it was stopped before it had written that
        assert not is_alive(run.pids("n1")[0])
    assert not any("ready, amqp on 127" in line for line in run.lines)


@pytest.mark.slow
def test_ctrl_c_before_it_is_ready(launch: Callable[..., Running]) -> None:
    run = launch(HOW_n2="slow")
    for node in ("n1", "n2", "n3"):
        run.await_line(f"log of {node}")  # from then on it minds SIGTERM
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0
    assert not is_alive(run.pids("n2")[0])


@pytest.mark.slow
def test_a_killed_supervisor_leaves_nobody_behind(launch: Callable[..., Running]) -> None:
    run = launch()
    run.await_line("cluster of 3 ready")
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not any(is_alive(pid) for n in (1, 2, 3) for pid in run.pids(f"n{n}")))


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("::1", 0)), reason="there is no IPv6")
def test_a_port_in_use_on_ipv6_is_named(launch: Callable[..., Running]) -> None:
    """A port in use on IPv6 is named, or clients that ask for `localhost` would come to another program."""
    base = free_base_port()
    with socket.create_server(("::1", base), family=socket.AF_INET6):
        run = launch(base_port=base)
        assert run.end() == 69
    assert run.lines[0] == f"fluffle: n1 cannot accept clients on [::1]:{base}: Address already in use"


@pytest.mark.slow
def test_a_port_in_use_is_named(launch: Callable[..., Running]) -> None:
    base = free_base_port()
    with socket.create_server(("127.0.0.1", base + 20001)):
        run = launch(base_port=base)
        assert run.end() == 69
    line = f"fluffle: n2 cannot accept other nodes on 127.0.0.1:{base + 20001}: Address already in use"
    assert run.lines == [line, "fluffle: choose other ports with --base-port PORT (make up BASE_PORT=PORT)"]
    assert not (run.directory / "n1").exists()


@pytest.mark.slow
def test_one_supervisor_a_directory(launch: Callable[..., Running]) -> None:
    run = launch()
    run.await_line("cluster of 3 ready")
    second = launch()
    assert second.end() == 69
    assert second.lines == [f"fluffle: a cluster runs on {run.directory} already, or it cannot be used"]
    assert run.process.poll() is None


@pytest.mark.slow
def test_a_second_start_is_as_the_first(launch: Callable[..., Running]) -> None:
    base = free_base_port()
    run = launch("--nodes", "2", "--ram", "n2", base_port=base)
    run.await_line("cluster of 2 ready")
    run.process.terminate()
    assert run.end() == 0
    assert json.loads((run.directory / "cluster.json").read_text()) == {
        "nodes": 2,
        "base_port": base,
        "ram": ["n2"],
    }
    again = launch(base_port=0)
    assert f"127.0.0.1:{base}, 127.0.0.1:{base + 1};" in again.await_line("cluster of 2 ready")
    first, second = (run.directory / "n2" / "started").read_text().splitlines()
    assert first.rpartition("|")[0] == second.rpartition("|")[0]
    again.process.terminate()
    assert again.end() == 0
