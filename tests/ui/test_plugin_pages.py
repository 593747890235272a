"""A plug-in in a package of its own is installed and enabled on a running node: numbers, a page, columns."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.patience import wait_until
from tests.kit.server_process import ROOT
from tests.node.telemetry.schema_check import read
from tests.ui.browser import Watch
from tests.ui.frame import confirm, go_to, log_in

pytestmark = pytest.mark.slow

COUNTS = "/plugins/message_counts/counts"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagedFluffle]:
    """A node in whose environment the example is installed; the plug-in is not enabled yet."""
    shutil.copytree(ROOT / "examples" / "message_counts", tmp_path / "message_counts")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, "--target", "site", "./message_counts"], cwd=tmp_path, check=True, timeout=120)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}/site")
    server = ManagedFluffle(
        {
            "telemetry.enabled": "true",
            "telemetry.directory": str(tmp_path / "telemetry"),
            "telemetry.interval": "500",
        }
    )
    try:
        yield server
    finally:
        server.stop()


def plugins(server: ManagedFluffle, *words: str) -> None:
    """Run `fluffle plugins` as an operator would."""
    command = [sys.executable, "-m", "node", "plugins", "--data", server.data, *words]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)


def test_a_plugin_has_numbers_a_page_and_columns(
    server: ManagedFluffle, watches: Callable[..., Watch], tmp_path: Path
) -> None:
    api = HttpApi(server)
    assert api.get(COUNTS).status == 404
    plugins(server, "enable", "message_counts")
    channel = Connection(server).channel(1)
    queue = channel.declare()
    for _ in range(3):
        channel.publish("", queue, b"m")
    assert len(drain(channel, queue)) == 3
    counts = api.get(COUNTS).json
    assert counts["users"] == [{"user": "guest", "published": 3, "delivered": 3}]
    row = next(each for each in api.get("/plugins").json if each["name"] == "message_counts")
    assert row["offers"]["page"] == "Message counts"
    assert [each["state"] for each in row["nodes"]] == ["running"]

    def columns() -> list[dict[str, int]]:
        rows = read(tmp_path / "telemetry" / server.name)
        return [each["plugins"] for each in rows if each["kind"] == "node" and "plugins" in each]

    wanted = {"message_counts.published_total": 3, "message_counts.delivered_total": 3}
    wait_until(lambda: wanted in columns(), "the plug-in's columns")

    watch = watches()
    page = watch.open(server.management_url)
    log_in(page)
    go_to(page, "#/plugins")
    expect(page.locator("main tr", has_text="message_counts")).to_contain_text("Message counts")
    page.locator("main").get_by_role("link", name="page Message counts").click()
    body = page.locator("main .page")
    expect(body.locator("h1")).to_have_text("Message counts")
    expect(body.locator("tbody tr")).to_have_text("guest33")
    expect(page.locator("nav.side a[aria-current='page']")).to_have_text("Message counts")
    body.get_by_role("button", name="Forget").click()
    confirm(page, "Forget")
    expect(body.locator(".empty")).to_be_visible()
    assert api.get(COUNTS).json["users"] == []
    channel.connection.close()
    plugins(server, "disable", "message_counts")
    assert api.get(COUNTS).status == 404
