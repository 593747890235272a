"""Pages of other people's clients: a node with a plug-in of WebSocket, and a page in Chromium with one script."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.kit.node_process import NodeProcess, enabled_plugins
from tests.kit.ports import HOST, free_port


@contextmanager
def websocket_node(directory: Path, name: str) -> Iterator[str]:
    """Run a node with the plug-in `rabbitmq_NAME`, and give the URL of its WebSocket."""
    node = NodeProcess(directory, environment=enabled_plugins(directory, f"rabbitmq_{name}"))
    port = free_port()
    node.start({f"{name}.tcp.ip": HOST, f"{name}.tcp.port": str(port)})
    try:
        yield f"ws://{HOST}:{port}/ws"
    finally:
        node.stop()


@contextmanager
def page_with(browser: Browser, script: Path) -> Iterator[Page]:
    """Open a page that has a script, in a context of its own."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.add_script_tag(path=script)
        yield page
    finally:
        context.close()
