"""A door in front of a node's HTTP API, where a test can have requests for steps wait and so knows where `apply` is.

All else passes. Who is killed while a request of theirs waits here has certainly sent it and not heard what came of it.
"""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from spark_ops.applying.shell import STEP_PATH

WAIT_S: Final = 60.0
"""Anybody here waits this long at most; only a failing test waits so long."""


class Side(Enum):
    """A request waits on one side.   ASKED: the node knows nothing of it.   ANSWERED: the node has done it."""

    ASKED = auto()
    ANSWERED = auto()


class Gate:
    """The door, open at first.   url: where it is."""

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        assert target.hostname is not None
        self._target = (target.hostname, target.port)
        self._changed = threading.Condition()
        self._passing: int | None = None
        """So many requests for steps may still pass; None: all."""
        self._side = Side.ASKED
        self._waiting = 0
        self._openings = 0
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate._serve(self)

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                """Log nothing, as nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["Gate"]:
        """Run the gate within the context."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.open()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def close_after(self, passing: int, side: Side) -> None:
        """Let so many requests for steps pass from now on, and hold the others."""
        with self._changed:
            self._passing, self._side = passing, side

    def await_waiting(self) -> None:
        """Wait until a request waits."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting, WAIT_S), "nobody came"

    def open(self) -> None:
        """Let all pass who wait, and who comes. Where nobody is left who could be told, the request is dropped."""
        with self._changed:
            self._passing, self._waiting = None, 0
            self._openings += 1
            self._changed.notify_all()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        is_held = handler.path.endswith(STEP_PATH) and self._takes()
        if is_held and self._side is Side.ASKED and not self._wait(handler):
            return
        connection = http.client.HTTPConnection(*self._target, timeout=WAIT_S)
        try:
            connection.request(handler.command, handler.path, body or None, dict(handler.headers))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if is_held and self._side is Side.ANSWERED and not self._wait(handler):
            return
        handler.send_response(response.status)
        handler.send_header("content-type", response.getheader("content-type", "application/json"))
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _takes(self) -> bool:
        """Whether a request for a step has to wait."""
        with self._changed:
            if self._passing is None:
                return False
            self._passing -= 1
            return self._passing < 0

    def _wait(self, handler: BaseHTTPRequestHandler) -> bool:
        """Returns: whether who asked is still there."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            openings = self._openings  # the gate may be closed again before we have looked
            assert self._changed.wait_for(lambda: self._openings > openings, WAIT_S), "nobody opened the gate"
        handler.connection.setblocking(False)
        try:
            return bool(handler.connection.recv(1))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            handler.connection.settimeout(WAIT_S)
