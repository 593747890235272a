"""The client of docs/stomp.md does what the page says."""

import pytest

from tests.docs.pages import Page
from tests.kit.fluffle_server import FluffleServer
from tests.kit.patience import wait_until
from tests.kit.ports import free_port


@pytest.mark.slow
def test_the_client_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    settings = {"stomp.listeners.tcp.default": f"127.0.0.1:{port}"}
    server = FluffleServer(settings, plugins=("rabbitmq_stomp",))
    try:
        program = Page("stomp", {"61613": str(port)}).block("python", "### 2. Connect")
        names: dict[str, object] = {}
        exec(compile(program, "docs/stomp.md", "exec"), names)
        told = []
        wait_until(lambda: told.append(capsys.readouterr().out) or "one" in "".join(told), "the message")
        names["connection"].disconnect()  # type: ignore[attr-defined]
    finally:
        server.stop()
