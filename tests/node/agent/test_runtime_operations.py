"""The command line shows a process's log, its configuration without secrets, and documents in parts."""

import asyncio
from pathlib import Path

import pytest

from node.agent.definition_operations import UPLOADS_MAX, Uploads
from node.agent.runtime_operations import (
    HIDDEN,
    STREAM_BYTES,
    _lines_after,
    last_lines,
    shown_config,
    shown_variables,
)
from node.config.config import Config, TlsOptions
from node.io.control import ControlError


def test_last_lines(tmp_path: Path) -> None:
    """The last lines are found in a long file and in one that is no text; a missing file is refused."""
    file = tmp_path / "log"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)) + b"\xff\n")
    assert last_lines(str(file), 3) == ["line 99998", "line 99999", "\ufffd"]
    assert last_lines(str(file), 0) == []
    with pytest.raises(ControlError, match="cannot be read"):
        last_lines(str(tmp_path / "no"), 3)


def test_lines_since_the_last_call(tmp_path: Path) -> None:
    """Whole lines only; a file that was replaced is read from its beginning."""
    file = tmp_path / "log"
    file.write_text("old\n")
    lines, after = _lines_after(str(file), None)
    assert (lines, after) == ([], 4)
    file.write_text("old\na\nb\nhal")
    lines, after = _lines_after(str(file), after)
    assert (lines, after) == (["a", "b"], 8)
    assert _lines_after(str(file), after) == ([], 8)
    file.write_text("new\n")
    assert _lines_after(str(file), after) == (["new"], 4)


def test_more_lines_than_are_read_at_once(tmp_path: Path) -> None:
    """A read ends with a whole line, unless one line is longer than a read."""
    file = tmp_path / "log"
    line = "ä" * 500
    file.write_text(f"{line}\n" * 600)
    position = 0
    lines: list[str] = []
    while position < file.stat().st_size:
        more, position = _lines_after(str(file), position)
        lines += more
    assert lines == [line] * 600
    file.write_text("x" * (STREAM_BYTES + 10) + "\n")
    lines, position = _lines_after(str(file), 0)
    assert (lines, position) == (["x" * STREAM_BYTES], STREAM_BYTES)
    assert _lines_after(str(file), position) == (["x" * 10], STREAM_BYTES + 11)


def test_secrets_are_hidden() -> None:
    config = Config("n@h", "/d", "c", tls=TlsOptions(key_password="s3cr3t"))
    shown = shown_config(config)
    assert shown["node_name"] == "n@h"
    assert shown["tls"]["key_password"] == HIDDEN
    assert "s3cr3t" not in str(shown)


def test_variables() -> None:
    environ = {"RABBITMQ_NODENAME": "n", "RABBITMQ_DEFAULT_PASS": "s3cr3t", "HOME": "/", "FLUFFLE_X": "1"}
    assert shown_variables(environ) == {
        "FLUFFLE_X": "1",
        "RABBITMQ_DEFAULT_PASS": HIDDEN,
        "RABBITMQ_NODENAME": "n",
    }


def test_uploads() -> None:
    """A number is good for one document; what does not go on is dropped."""

    async def story() -> None:
        uploads = Uploads()
        first, second = uploads.put(None, "a"), uploads.put(None, "x")
        assert uploads.put(first, "b") == first
        assert uploads.take(first, "c") == "abc"
        assert uploads.take(None, "all") == "all"
        for number in (first, 99, "x", True):
            with pytest.raises(ControlError, match="not there"):
                uploads.take(number, "")
        others = [uploads.put(None, "y") for _ in range(UPLOADS_MAX - 1)]
        with pytest.raises(ControlError, match="try again later"):
            uploads.put(None, "z")
        for number in (second, *others):
            uploads.take(number, "")

    asyncio.run(story())
