"""A server removes only what it made: stopping one that never ran must not touch the working directory."""

from pathlib import Path

import pytest

from bench.servers import Fluffle, RabbitMQ, Server, server_version


@pytest.mark.parametrize("kind", [Fluffle, RabbitMQ])
def test_stop_before_start_removes_nothing(
    kind: type[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_text("work of others")
    monkeypatch.chdir(tmp_path)
    server = kind()
    server.stop()
    with server:
        pass
    assert (tmp_path / "kept").read_text() == "work of others"


def test_no_directory_before_start() -> None:
    with pytest.raises(AssertionError, match="not started"):
        _ = Fluffle().directory


def test_version_from_connection_start() -> None:
    def entry(name: bytes, value: bytes) -> bytes:
        return bytes([len(name)]) + name + b"S" + len(value).to_bytes(4, "big") + value

    start = (
        b"\0\x09" + entry(b"product", b"RabbitMQ") + entry(b"version", b"3.10.8") + entry(b"platform", b"X/1")
    )
    assert server_version(start) == "RabbitMQ 3.10.8, X/1"
