"""The control socket from outside, and the registry: against servers that are a thread's few lines."""

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.io import control
from node.io.control import ControlError, ControlTimeout, ControlUnreachable, request


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fluffle-control-") as path:
        yield Path(path)


@contextlib.contextmanager
def listening(data_dir: Path, answer: Callable[[bytes], bytes] | None = None) -> Iterator[None]:
    """Somebody on the control socket who gives each request this answer; without one, none ever."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        with control.short_path(str(data_dir)) as path:
            server.bind(path)
        server.listen()
        thread = threading.Thread(daemon=True, target=serve, args=(server, answer))
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    (data_dir / control.SOCKET_NAME).unlink()


def serve(server: socket.socket, answer: Callable[[bytes], bytes] | None) -> None:
    open_ones = []
    with contextlib.suppress(OSError):
        while True:
            sock, _ = server.accept()
            open_ones.append(sock)
            if answer is not None:
                line = b""
                while not line.endswith(b"\n") and (piece := sock.recv(1 << 16)):
                    line += piece
                if line:
                    sock.sendall(answer(line))
                sock.close()
    for sock in open_ones:
        sock.close()


@pytest.mark.real
def test_a_request_and_its_result(directory: Path) -> None:
    asked = []

    def answer(line: bytes) -> bytes:
        asked.append(json.loads(line))
        return b'{"result": {"x": [1]}}\n'

    with listening(directory, answer):
        assert request(str(directory), "ping", {"a": "b"}, timeout_s=5) == {"x": [1]}
    assert asked == [{"operation": "ping", "arguments": {"a": "b"}, "timeout_s": 5}]


@pytest.mark.real
def test_an_error_has_its_exit_code_and_text(directory: Path) -> None:
    with (
        listening(directory, lambda line: b'{"error": {"exit_code": 70, "text": "no"}}\n'),
        pytest.raises(ControlError, match=r"^no$") as caught,
    ):
        request(str(directory), "ping", {}, timeout_s=5)
    assert caught.value.exit_code == 70


@pytest.mark.real
@pytest.mark.parametrize("answer", [b"", b"{}\n", b"[]\n", b"nonsense\n", b'{"error": 3}\n', b'{"result"'])
def test_an_answer_that_makes_no_sense(directory: Path, answer: bytes) -> None:
    with listening(directory, lambda line: answer), pytest.raises(ControlUnreachable) as caught:
        request(str(directory), "ping", {}, timeout_s=5)
    assert caught.value.exit_code == 69


@pytest.mark.real
def test_nobody_listens(directory: Path) -> None:
    """management §3.1: 69 for a node that is down."""
    with pytest.raises(ControlUnreachable, match="no node runs on"):
        request(str(directory), "ping", {}, timeout_s=5)
    with pytest.raises(ControlUnreachable, match="no node runs on"):
        request(str(directory / "missing"), "ping", {}, timeout_s=5)


@pytest.mark.real
def test_no_answer_in_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """management §3.1: 75 for a time-out."""
    monkeypatch.setattr(control, "_SLACK_S", 0.0)
    with listening(directory), pytest.raises(ControlTimeout, match=r"within 0.05 s") as caught:
        request(str(directory), "ping", {}, timeout_s=0.05)
    assert caught.value.exit_code == 75


def test_a_request_that_is_too_large_is_not_sent(directory: Path) -> None:
    with pytest.raises(ControlError, match="bytes") as caught:
        request(str(directory), "ping", {"a": "x" * control.REQUEST_MAX_BYTES}, timeout_s=5)
    assert caught.value.exit_code == 64


@pytest.mark.real
def test_a_path_longer_than_a_socket_address(directory: Path) -> None:
    deep = directory / ("d" * 100) / ("e" * 100)
    with listening(deep, lambda line: b'{"result": 1}\n'):
        assert request(str(deep), "ping", {}, timeout_s=5) == 1


@pytest.mark.real
def test_a_long_answer(directory: Path) -> None:
    rows = ["x" * 1000] * 1000
    with listening(directory, lambda line: json.dumps({"result": rows}).encode() + b"\n"):
        assert request(str(directory), "list", {}, timeout_s=5) == rows


# --- the registry ---


def environ(directory: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(directory)}


@pytest.mark.real
def test_nodes_that_run_are_found_by_their_names(directory: Path) -> None:
    env = environ(directory)
    data = directory / "data"
    with listening(data, lambda line: b"{}\n"):
        control.register("n1@host", str(data), env)
        control.register("n2@host", str(directory / "stale"), env)
        assert control.find_node("n1@host", env) == str(data)
        assert control.find_node("n2@host", env) is None
        assert control.find_node("n3@host", env) is None
        assert control.registered_nodes(env) == [("n1@host", str(data))]
        control.unregister("n1@host", str(data), env)
        assert control.registered_nodes(env) == []


@pytest.mark.real
def test_nodes_of_one_name_do_not_take_each_others_place(directory: Path) -> None:
    env = environ(directory)
    one, other, failed = (str(directory / name) for name in ("one", "other", "failed"))
    with listening(Path(one), lambda line: b"{}\n"), listening(Path(other), lambda line: b"{}\n"):
        for data in (one, other, failed):
            control.register("n1@host", data, env)
        control.unregister("n1@host", failed, env)
        assert sorted(control.registered_nodes(env)) == [("n1@host", one), ("n1@host", other)]
        assert control.find_node("n1@host", env) is None
        control.unregister("n1@host", one, env)
        assert control.find_node("n1@host", env) == other


def test_nodes_that_were_killed_are_taken_off_when_another_comes(directory: Path) -> None:
    env = environ(directory)
    control.register("n1@host", str(directory / "killed"), env)
    assert control.has_entries(env)
    control.register("n2@host", str(directory), env)
    assert [name.partition("~")[0] for name in os.listdir(directory / "fluffle")] == ["n2@host"]


def test_a_node_does_not_take_another_off_the_list(directory: Path) -> None:
    env = environ(directory)
    control.register("n1@host", str(directory / "new"), env)
    control.unregister("n1@host", str(directory / "old"), env)
    (entry,) = (directory / "fluffle").iterdir()
    assert entry.read_text() == f"{directory}/new\n"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a\0b"])
def test_names_that_would_leave_the_registry(directory: Path, name: str) -> None:
    with pytest.raises(OSError, match="not a node's name"):
        control.register(name, str(directory), environ(directory))
    assert control.find_node(name, environ(directory)) is None


@pytest.mark.real
def test_a_registry_that_others_may_write_is_not_believed(directory: Path) -> None:
    env = environ(directory)
    data = directory / "data"
    with listening(data, lambda line: b"{}\n"):
        control.register("n1@host", str(data), env)
        os.chmod(directory / "fluffle", 0o777)
        assert control.find_node("n1@host", env) is None
        assert control.registered_nodes(env) == []
        with pytest.raises(PermissionError):
            control.register("n1@host", str(data), env)
        os.chmod(directory / "fluffle", 0o700)
        (entry,) = (directory / "fluffle").iterdir()
        entry.chmod(0o666)
        assert control.find_node("n1@host", env) is None


@pytest.mark.real
def test_an_entry_that_is_a_link_or_names_no_directory_is_passed_over(directory: Path) -> None:
    env = environ(directory)
    control.register("n1@host", str(directory), env)
    (entry,) = (directory / "fluffle").iterdir()
    (directory / "fluffle" / "n2@host~0").symlink_to(entry)
    (directory / "fluffle" / "n3@host~0").write_text("relative\n")
    (directory / "fluffle" / "n4@host~0").write_bytes(b"\xff\n")
    assert control.registered_nodes(env) == []


def test_without_a_runtime_directory_there_is_one_for_each_user() -> None:
    assert control.registry_directory({}) == f"/tmp/fluffle-{os.getuid()}"
    assert control.registry_directory({"XDG_RUNTIME_DIR": "relative"}) == f"/tmp/fluffle-{os.getuid()}"
    assert control.registry_directory({"XDG_RUNTIME_DIR": "/does/not/exist"}) == f"/tmp/fluffle-{os.getuid()}"
