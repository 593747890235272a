"""The client @stomp/stompjs in Node.js, unmodified, over ws: a session of each version, and compressed messages.

tests/ui/test_stompjs.py has it in a page of Chromium.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.stomp.conftest import WebServer
from tests.kit.node_js import needs_packages, run_program
from tests.kit.server_cluster import is_rabbitmq

SESSION = Path(__file__).parent / "stompjs_session.cjs"
Name = Callable[[str], str]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder with the client."""
    return needs_packages("@stomp/stompjs", "ws")


def session(packages: Path, url: str, **options: Any) -> Any:
    """Run a session; return what it saw."""
    login = {} if "cert" in options else {"login": "guest", "passcode": "guest"}
    return run_program(SESSION, str(packages), json.dumps({"url": url, **login, **options}))


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_session(packages: Path, web_server: WebServer, name: Name, version: str) -> None:
    """Receipts, transactions, acks and large messages; ws offers compression, and the server takes it.

    RabbitMQ sends octets that are no text as a text, which ws refuses.
    """
    octets = [] if is_rabbitmq() else [0, 255, 10, 0]
    found = session(packages, web_server.url, version=version, queue=name("q"), octets=octets or None)
    assert found.get("fault") is None
    assert found["version"] == version
    assert found["messages"] == [
        ["text", "grün: \\", 7],
        ["large", "ä" * 20, 100_000],
        *([["octets", octets, 4]] if octets else []),
        ["last", "end", 3],
    ]
    assert found["extensions"].startswith("permessage-deflate")


def test_heart_beats_keep_a_connection(packages: Path, web_server: WebServer, name: Name) -> None:
    found = session(packages, web_server.url, version="1.2", queue=name("q"), heartbeat=1000)
    assert found.get("fault") is None


def test_a_wrong_password_is_refused(packages: Path, web_server: WebServer) -> None:
    found = session(packages, web_server.url, version="1.2", queue="none", passcode="wrong")
    assert found == {"fault": "Bad CONNECT"}
