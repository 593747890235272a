"""A web service that says who may log in and do what, as RabbitMQ's `rabbitmq_auth_backend_http` asks it.

The user of each name has it for a password, too, but for names that begin with `no`; vhosts, queues and exchanges whose
name has `forbidden` in it are refused, and so are routing keys that begin with `no`.
"""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlsplit

TAGS: Final = {"ada": "monitoring", "boss": "administrator management"}
"""The tags of users that have some."""


class AuthService:
    """The service, on a free port of loopback.

    requests: the last word of the path and the fields of each request so far, without repetitions, in their order.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.is_broken = False
        """True if every request is answered with status 500."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(urlsplit(self.path).query)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

            def log_message(self, format: str, *arguments: object) -> None:
                """Print nothing."""

            def _answer(self, query: str) -> None:
                kind = urlsplit(self.path).path.rpartition("/")[2]
                fields = dict(parse_qsl(query, keep_blank_values=True))
                if (kind, fields) not in service.requests:
                    service.requests.append((kind, fields))
                body = _answer_to(kind, fields).encode()
                self.send_response(500 if service.is_broken else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="auth service", daemon=True)
        self._thread.start()

    @property
    def settings(self) -> dict[str, str]:
        """The keys of a configuration file that have a server ask this service."""
        base = f"http://127.0.0.1:{self._server.server_port}/auth"
        return {f"auth_http.{kind}_path": f"{base}/{kind}" for kind in ("user", "vhost", "resource", "topic")}

    def stop(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer_to(kind: str, fields: Mapping[str, str]) -> str:
    if kind == "user":
        name = fields["username"]
        is_right = fields.get("password") == name and not name.startswith("no")
        return f"allow {TAGS.get(name, '')}" if is_right else "deny"
    names = fields.get("vhost", ""), fields.get("name", "")
    is_refused = any("forbidden" in name for name in names) or fields.get("routing_key", "").startswith("no")
    return "deny" if is_refused else "allow"
