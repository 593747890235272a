"""The client of management APIs passes over nodes that do not answer, and tells why a request was refused."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from node.cli.migrate.addresses import address
from node.cli.migrate.http_api import Api, ApiFailed

pytestmark = pytest.mark.real

ANSWERS = {
    "/api/good": (200, b'{"a": 1}'),
    "/api/empty": (204, b""),
    "/api/html": (200, b"<html>"),
    "/api/starting": (503, b""),
    "/api/refused": (
        400,
        json.dumps({"error": "bad_request", "reason": "no amqp://u:secret@host here"}).encode(),
    ),
    "/api/login": (401, json.dumps({"error": "not_authorised", "reason": "Login failed"}).encode()),
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with `ANSWERS`, else 404."""

    def do_GET(self) -> None:
        status, body = ANSWERS.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_PUT = do_GET

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def dead() -> Iterator[int]:
    """A port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def api(*ports: int) -> Api:
    return Api([address(f"http://u:p@127.0.0.1:{port}", {}) for port in ports])


def test_a_node_that_is_down_is_passed_over(port: int, dead: int) -> None:
    """The one that answers is asked first the next time."""
    found = api(dead, port)
    assert found.get("/good") == {"a": 1}
    assert found.shown.endswith(str(port))


def test_no_node_answers(dead: int) -> None:
    with pytest.raises(ApiFailed, match="Connection refused") as caught:
        api(dead).get("/good")
    assert caught.value.status == 0


def test_a_node_that_is_not_ready_is_passed_over(port: int) -> None:
    with pytest.raises(ApiFailed, match=r"503.*; .*503"):
        api(port, port).get("/starting")


def test_bodies(port: int) -> None:
    """An answer that is no JSON is like none."""
    assert api(port).get("/empty") is None
    assert api(port).get("/html") is None


def test_reasons_are_told_without_passwords(port: int) -> None:
    with pytest.raises(ApiFailed) as caught:
        api(port).put("/refused", {})
    assert "400 no … here" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_login_that_fails_says_what_is_needed(port: int) -> None:
    with pytest.raises(
        ApiFailed, match=r"401, Login failed: an administrator's name and password are needed"
    ):
        api(port).get("/login")


def test_what_is_gone_may_be_deleted_again(port: int) -> None:
    assert api(port).delete("/nothing") is False
    assert api(port).delete("/empty") is True
