"""The client of docs/mqtt.md does what the page says."""

import pytest

from tests.docs.pages import Page
from tests.kit.fluffle_server import FluffleServer
from tests.kit.patience import wait_until
from tests.kit.ports import free_port


@pytest.mark.slow
def test_the_client_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    settings = {"mqtt.listeners.tcp.default": f"127.0.0.1:{port}"}
    server = FluffleServer(settings, plugins=("rabbitmq_mqtt",))
    try:
        program = Page("mqtt", {"1883": str(port)}).block("python", "### 3. Connect")
        names: dict[str, object] = {}
        exec(compile(program, "docs/mqtt.md", "exec"), names)
        told = []
        wait_until(
            lambda: told.append(capsys.readouterr().out) or "house/7/power 230" in "".join(told),
            "the message",
        )
        names["client"].disconnect()  # type: ignore[attr-defined]
        names["client"].loop_stop()  # type: ignore[attr-defined]
    finally:
        server.stop()
