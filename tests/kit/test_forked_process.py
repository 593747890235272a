"""Forked processes are told, waited for and killed as others are, and have nothing of the server that forked them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cluster_processes import cluster_processes
from tests.kit.faulty_disk import FaultyDisk, can_build
from tests.kit.forked_process import ForkedProcess, forked, run_command
from tests.kit.node_process import NodeProcess, StartFailed

pytestmark = pytest.mark.real

VERSION = (sys.executable, "-m", "node", "version")
END_S = 40.0


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.delenv("FLUFFLE_TEST_FORK", raising=False)
    return {"PATH": os.environ["PATH"]}


def start(command: tuple[str, ...], environment: dict[str, str], log: Path) -> ForkedProcess | None:
    with log.open("wb") as file:
        return forked(command, environment, file)


def test_the_output_and_the_exit_code_are_those_of_the_command(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(VERSION, capture_output=True, check=True)
    process = start(VERSION, environment, tmp_path / "log")
    assert process is not None
    assert process.wait(END_S) == process.poll() == 0
    assert (tmp_path / "log").read_bytes() == done.stdout
    process = start((sys.executable, "-m", "node", "no such command"), environment, tmp_path / "log")
    assert process is not None
    assert process.wait(END_S) == 64
    assert "invalid choice: 'no such command'" in (tmp_path / "log").read_text()


def test_a_node_has_its_own_files_and_can_be_killed(environment: dict[str, str], tmp_path: Path) -> None:
    with cluster_processes(tmp_path) as processes:
        node = processes.make("n1", is_plain=True)
        node.launch()
        node.wait_ready()
        proc = Path(f"/proc/{node.pid}")
        assert (proc / "cwd").readlink() == Path(__file__).parents[2]
        assert node.ask("status")["pid"] == node.pid
        parent = Path(f"/proc/{(proc / 'stat').read_text().rpartition(')')[2].split()[1]}")
        assert b"tests.kit.fork_server" in (parent / "cmdline").read_bytes()
        of_parent = {link.readlink() for link in (parent / "fd").iterdir() if int(link.name) > 2}
        of_node = {link.readlink() for link in (proc / "fd").iterdir()}
        assert not {each for each in of_node & of_parent if "anon_inode" not in str(each)}
        node.kill()
        assert node.exit_code is None
        node.launch()
        node.wait_ready()
        node.terminate()
        assert node.wait() == 0


def test_who_has_ended_is_not_signalled(environment: dict[str, str], tmp_path: Path) -> None:
    process = start((sys.executable, "-m", "node", "start", "--help"), environment, tmp_path / "log")
    assert process is not None
    assert process.wait(END_S) == 0
    process.kill()
    process.send_signal(signal.SIGTERM)
    assert process.poll() == 0


def test_a_wait_has_an_end(environment: dict[str, str], tmp_path: Path) -> None:
    command = (
        sys.executable,
        "-m",
        "node",
        "start",
        "--data",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
    )
    process = start((*command, "--management", "off"), environment, tmp_path / "log")
    assert process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    assert process.poll() is None
    process.kill()
    assert process.wait(END_S) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "value"), [("LD_PRELOAD", "/nothing.so"), ("PYTHONPATH", "/nothing"), ("PYTHONHASHSEED", "7")]
)
def test_what_counts_when_a_process_is_loaded_forbids_it(
    environment: dict[str, str], tmp_path: Path, name: str, value: str
) -> None:
    assert start(VERSION, {**environment, name: value}, tmp_path / "log") is None


@pytest.mark.skipif(not can_build(), reason="there is no gcc")
def test_a_node_with_a_faulty_disk_is_forked_and_its_disk_fails(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Each node has the faults of its own folder, though all of them share the library."""
    disks = [FaultyDisk(tmp_path / name, tmp_path / name / "data") for name in ("one", "other")]
    disks[0].fail("write")
    nodes = [
        NodeProcess(tmp_path / name, environment=disk.environment)
        for name, disk in zip(("one", "other"), disks, strict=True)
    ]
    with pytest.raises(StartFailed, match="Input/output error"):
        nodes[0].start()
    nodes[1].start()
    status = Path(f"/proc/{nodes[1].pid}/stat").read_text().rpartition(")")[2].split()
    assert b"tests.kit.fork_server" in Path(f"/proc/{status[1]}/cmdline").read_bytes()
    assert nodes[1].stop() == 0


@pytest.mark.parametrize("is_forked", [True, False])
def test_a_command_is_run_to_its_end(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, is_forked: bool
) -> None:
    monkeypatch.setenv("FLUFFLE_TEST_FORK", str(int(is_forked)))
    done = run_command(VERSION, environment, END_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fluffle ")
    done = run_command((*VERSION[:-1], "ctl", "--data", "/nowhere", "status"), environment, END_S)
    assert (done.returncode, done.stdout) == (69, "")
    assert "no node runs on /nowhere" in done.stderr


def test_other_programs_are_not_forked(environment: dict[str, str], tmp_path: Path) -> None:
    assert start((sys.executable, "-c", "pass"), environment, tmp_path / "log") is None
    assert start(("/bin/true", "-m", "node"), environment, tmp_path / "log") is None
