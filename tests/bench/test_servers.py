"""A server removes only what it made: stopping one that never ran must not touch the working directory."""

from pathlib import Path

import pytest

from bench.servers import REPOSITORY, Fluffle, RabbitMQ, Server, server_version


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


@pytest.mark.parametrize("kind", [Fluffle, RabbitMQ])
def test_settings_are_lines_of_the_configuration(kind: type[Server]) -> None:
    """Settings are lines that come after what the server itself needs."""
    server = kind()
    server.settings = ["vm_memory_high_watermark.absolute = 400MB"]
    assert server.configuration()[-1] == "vm_memory_high_watermark.absolute = 400MB"


@pytest.mark.parametrize("kind", [Fluffle, RabbitMQ])
def test_restart_needs_a_start(kind: type[Server]) -> None:
    """A server that was not started has nothing to end and no data, so it cannot restart."""
    with pytest.raises(AssertionError, match="not started"):
        kind().restart()


@pytest.mark.real
def test_another_checkout_has_its_own_name_and_sources(tmp_path: Path) -> None:
    """A directory without git is named as it is."""
    assert Fluffle().name == "Fluffle"
    assert Fluffle().environment()["PYTHONPATH"] == str(REPOSITORY)
    checkout = tmp_path / "before"
    checkout.mkdir()
    other = Fluffle(checkout=checkout)
    assert other.name == "before"
    assert other.environment()["PYTHONPATH"] == str(checkout)
