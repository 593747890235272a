"""The control socket on the node's side, spoken to with raw bytes."""

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.io import control_server
from node.io.control import REQUEST_MAX_BYTES, SOCKET_NAME, ControlError, short_path
from node.io.control_server import ControlServer
from node.io.data_directory import DataDirectoryError

pytestmark = pytest.mark.real


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fluffle-control-") as path:
        yield Path(path) / "data"


async def echo(operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
    if operation == "refuse":
        raise ControlError(70, "a rule is against it")
    if operation == "fail":
        raise RuntimeError("a fault")
    if operation == "hang":
        await asyncio.sleep(60)
    if operation == "long":
        return "x" * control_server.REPLY_MAX_BYTES
    return [operation, arguments, timeout_s]


def run(data_dir: Path, talk: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        server = ControlServer(str(data_dir), echo)
        await server.start()
        try:
            await talk()
        finally:
            await server.close()

    asyncio.run(main())


async def say(data_dir: Path, line: bytes) -> dict[str, Any]:
    with short_path(str(data_dir)) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 27)
    writer.write(line)
    answer = await reader.readline()
    assert await reader.read() == b""
    writer.close()
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b'{"operation": "ping"}\n', {"result": ["ping", {}, 60.0]}),
        (b'{"operation": "x", "arguments": {"a": 1}, "timeout_s": 2}\n', {"result": ["x", {"a": 1}, 2.0]}),
        (b'{"operation": "refuse"}\n', {"error": {"exit_code": 70, "text": "a rule is against it"}}),
        (
            b'{"operation": "hang", "timeout_s": 0.05}\n',
            {"error": {"exit_code": 75, "text": "hang: not done within 0.05 s"}},
        ),
        (
            b'{"operation": "fail"}\n',
            {"error": {"exit_code": 70, "text": "fail: a fault of ours: RuntimeError('a fault')"}},
        ),
    ],
)
def test_requests_and_answers(data_dir: Path, line: bytes, answer: dict[str, Any]) -> None:
    async def talk() -> None:
        assert await say(data_dir, line) == answer

    run(data_dir, talk)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b'"ping"\n',
        b'{"operation": 1}\n',
        b'{"operation": "x", "arguments": []}\n',
        b'{"operation": "x", "timeout_s": "1"}\n',
        b'{"operation": "x", "timeout_s": true}\n',
        b'{"operation": "x", "timeout_s": 0}\n',
        b'{"operation": "x", "timeout_s": 1e99}\n',
        b'{"operation": "x", "timeout_s": NaN}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"x" * (REQUEST_MAX_BYTES + 1) + b"\n",
    ],
)
def test_what_is_no_request_is_refused(data_dir: Path, line: bytes) -> None:
    async def talk() -> None:
        answer = await say(data_dir, line)
        assert answer["error"]["exit_code"] == 64
        assert await say(data_dir, b'{"operation": "ping"}\n') == {"result": ["ping", {}, 60.0]}

    run(data_dir, talk)


def test_an_answer_that_is_too_long_is_an_error(data_dir: Path) -> None:
    async def talk() -> None:
        assert (await say(data_dir, b'{"operation": "long"}\n'))["error"]["exit_code"] == 70

    run(data_dir, talk)


def test_who_says_nothing_is_let_go(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "READ_S", 0.05)

    async def talk() -> None:
        assert (await say(data_dir, b""))["error"]["exit_code"] == 64

    run(data_dir, talk)


def test_more_requests_than_it_serves_are_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "REQUESTS_MAX", 2)

    async def talk() -> None:
        hanging = [
            asyncio.create_task(say(data_dir, b'{"operation": "hang", "timeout_s": 0.5}\n')) for _ in range(2)
        ]
        await asyncio.sleep(0.1)
        answer = await say(data_dir, b'{"operation": "ping"}\n')
        assert answer == {"error": {"exit_code": 69, "text": "the node is busy with 2 other requests"}}
        await asyncio.gather(*hanging)

    run(data_dir, talk)


def test_the_socket_is_for_its_user_only_and_goes_with_the_server(data_dir: Path) -> None:
    async def talk() -> None:
        assert stat.S_IMODE((data_dir / SOCKET_NAME).stat().st_mode) == 0o600
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700

    run(data_dir, talk)
    assert not (data_dir / SOCKET_NAME).exists()


def test_what_a_killed_node_left_is_replaced(data_dir: Path) -> None:
    data_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as left, short_path(str(data_dir)) as path:
        left.bind(path)

    async def talk() -> None:
        assert await say(data_dir, b'{"operation": "ping"}\n') == {"result": ["ping", {}, 60.0]}

    run(data_dir, talk)


def test_one_directory_has_one_server(data_dir: Path) -> None:
    async def talk() -> None:
        (data_dir / "lock").write_text(f"{os.getpid()}\n")
        second = ControlServer(str(data_dir), echo)
        with pytest.raises(DataDirectoryError, match=f"in use by another node \\(pid {os.getpid()}\\)"):
            await second.start()
        assert await say(data_dir, b'{"operation": "ping"}\n') == {"result": ["ping", {}, 60.0]}

    run(data_dir, talk)


def test_a_directory_that_cannot_be_made(data_dir: Path) -> None:
    data_dir.write_text("a file")

    async def main() -> None:
        with pytest.raises(DataDirectoryError, match="cannot be used"):
            await ControlServer(str(data_dir), echo).start()

    asyncio.run(main())
