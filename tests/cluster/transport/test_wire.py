"""gRPC is kept in one place, and set up before it is imported; what has ended holds nothing."""

import ast
import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import weakref
from pathlib import Path

import grpc.aio  # type: ignore[import-untyped]
import pytest

from cluster.transport.interface import LinkOptions
from cluster.transport.stream import StreamEnded
from cluster.transport.wire import GRPC_LOGGER, first_of, make_server

ROOT = Path(__file__).resolve().parents[3]


def test_grpc_is_imported_in_one_file() -> None:
    """One file of the nodes' source imports grpc (ARCHITECTURE.md, "Who may import whom")."""
    importers = set()
    for path in (path for folder in ("node", "cluster") for path in (ROOT / folder).rglob("*.py")):
        for statement in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            if any(name.split(".")[0] == "grpc" for name in names):
                importers.add(path.relative_to(ROOT).as_posix())
    assert importers == {"cluster/transport/wire.py"}


@pytest.mark.real
def test_forks_are_safe_and_the_pure_parts_need_no_grpc() -> None:
    """ring §4: without GRPC_ENABLE_FORK_SUPPORT=0, set before the import, children of forks crash."""
    script = """
import os, sys
import cluster.transport.interface, cluster.transport.stream, cluster.transport.handshake, cluster.transport.security
assert "grpc" not in sys.modules and "asyncio" not in sys.modules
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "1"
import cluster.transport.transport
assert "grpc" in sys.modules and os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_a_peer_that_went_away_is_no_error_of_this_node(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC logs it as an error with a traceback, once for each call that it had open."""

    async def serve() -> None:
        make_server({}, LinkOptions())

    asyncio.run(serve())
    for error in (grpc.aio.InternalError("the peer is gone"), ValueError("a fault of ours")):
        logging.getLogger(GRPC_LOGGER).error("raised", exc_info=error)
    assert [entry.levelno for entry in caplog.records] == [logging.DEBUG, logging.ERROR]


class Held:
    """Stands for a stream, which holds its connection."""


async def _ends(held: Held) -> None:
    raise StreamEnded(f"{held} has ended")


def test_a_stream_that_ended_holds_no_connection() -> None:
    """Old circles are looked for too seldom (`node.app`): whatever is left of a stream must go with it."""

    async def story() -> "weakref.ref[Held]":
        held = Held()
        with contextlib.suppress(StreamEnded):
            await first_of(_ends(held), asyncio.sleep(60))
        return weakref.ref(held)

    gc.disable()
    try:
        assert asyncio.run(story())() is None
    finally:
        gc.enable()
