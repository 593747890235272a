"""`fluffle start` and `fluffle version`, with a node that only opens and closes."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from node.cli.main import main
from node.cli.start import DiskFiles, raise_file_limit
from node.version import VERSION

ROOT = Path(__file__).parents[3]

STUB = """
import sys, types
from unittest.mock import MagicMock
class Node:
    def __init__(self, config, *, logger, cluster, mirroring_events, observer, on_failed, on_held, claims):
        self.config, self.listeners, self.broker = config, [], MagicMock()
        self.tls_listeners = frozenset([("::1", 5999)])
    async def start(self):
        {start}
        self.listeners = [("127.0.0.1", 5999), ("::1", 5999)]
    async def stop(self):
        print("stopped", flush=True)
        return True
app = types.ModuleType("node.app")
app.Node, app.ClusterSide, app.ClusterLog = Node, object, object
sys.modules["node.app"] = app
from node.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def spawn(arguments: Sequence[str], start: str = "pass", **environ: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            STUB.format(start=start),
            *arguments,
            "--management",
            "off",
            "--listen",
            "127.0.0.1:0",
        ],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def empty_config(tmp_path: Path) -> str:
    path = tmp_path / "f.conf"
    path.write_text("")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_then_a_signal_stops_it_with_code_0(number: signal.Signals, empty_config: str) -> None:
    process = spawn(["start", "--name", "n1@h", "--config", empty_config])
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready == "fluffle: node n1@h ready, amqp on 127.0.0.1:5999, amqp/ssl on [::1]:5999\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == "stopped\n"
    assert "Starting Fluffle" in err
    assert err.index("Server startup complete") < err.index("Successfully stopped RabbitMQ")


@pytest.mark.slow
def test_a_signal_before_it_is_ready_stops_it_with_code_0(empty_config: str) -> None:
    start = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    process = spawn(["start", "--config", empty_config], start)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out.endswith("stopped\n")


@pytest.mark.slow
def test_a_log_that_nobody_reads_does_not_hold_up_the_stop(empty_config: str) -> None:
    start = "import logging; [logging.getLogger('fluffle').info('x' * 1000) for _ in range(1000)]"
    process = spawn(["start", "--config", empty_config], start)  # a pipe holds 64 KiB of this megabyte
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.terminate()
    assert process.wait(timeout=20) == 0
    process.communicate()


@pytest.mark.slow
def test_a_port_in_use_is_told_and_the_code_is_69(empty_config: str) -> None:
    start = "raise OSError(98, 'Address already in use')"
    process = spawn(["start", "--config", empty_config], start)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 69
    assert out == ""
    assert "fluffle: cannot start: [Errno 98] Address already in use\n" in err


@pytest.mark.slow
def test_settings_without_effect_are_named_once_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "f.conf"
    path.write_text("net_ticktime = 60\nmanagement.enable_uaa = false\n")
    process = spawn(["start", "--config", str(path)], RABBITMQ_PID_FILE="25672")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, err = process.communicate(timeout=20)
    text = (
        "Accepted, but without effect in this version: net_ticktime, management.enable_uaa, RABBITMQ_PID_FILE"
    )
    assert err.count(text) == 1


@pytest.mark.slow
def test_the_log_can_go_to_a_file(tmp_path: Path, empty_config: str) -> None:
    process = spawn(
        ["start", "--config", empty_config, "--name", "n@h"], RABBITMQ_LOG_BASE=str(tmp_path / "log")
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert err == ""
    assert "Starting Fluffle" in (tmp_path / "log" / "n@h.log").read_text()


@pytest.mark.slow
def test_the_command_line_imports_neither_loop_nor_broker() -> None:
    code = (
        "import sys; from node.cli.main import main; main(['version'])\n"
        "heavy = ('asyncio', 'uvloop', 'ssl', 'logging', 'node.config.config', 'node.app')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


@pytest.mark.slow
def test_python_m_node_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "node", "version"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["fluffle", VERSION])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"fluffle {VERSION} (compatible with RabbitMQ 3.10.8)\n"


def test_a_bad_configuration_is_code_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.conf"
    path.write_text("heartbeet = 1\nchannel_max = many\n")
    assert main(["start", "--config", str(path)]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"fluffle: {path}:1: heartbeet: there is no such setting; did you mean heartbeat?\n"
        f"fluffle: {path}:2: channel_max: 'many' is not allowed; allowed: a whole number from 0 to 65535\n"
    )


def test_a_removed_variable_is_code_78(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], empty_config: str
) -> None:
    monkeypatch.setenv("RABBITMQ_SSL_CERTFILE", "x")
    assert main(["start", "--config", empty_config]) == 78
    assert "RABBITMQ_SSL_CERTFILE" in capsys.readouterr().err


def test_a_place_for_management_that_is_none(capsys: pytest.CaptureFixture[str], empty_config: str) -> None:
    assert main(["start", "--config", empty_config, "--management", "nonsense"]) == 78
    assert "--management" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["strat"], ["start", "--nope"], ["start", "extra"]])
def test_a_bad_command_line_is_code_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 64
    assert "usage: fluffle" in capsys.readouterr().err


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert raise_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_files_on_disk(tmp_path: Path) -> None:
    for name in ("b.conf", "a.conf", "c.txt"):
        (tmp_path / name).write_text(name)
    files = DiskFiles()
    both = [str(tmp_path / "a.conf"), str(tmp_path / "b.conf")]
    assert files.expand(str(tmp_path)) == both
    assert files.expand(str(tmp_path / "*")) == both
    assert files.expand(str(tmp_path / "no")) == []
    assert files.read(both[0]) == b"a.conf"
    assert files.read(str(tmp_path / "no")) is None
    assert files.readable(both[0])
    assert not files.readable(str(tmp_path))
    assert not files.readable(str(tmp_path / "no"))
