"""A page in Chromium speaks MQTT over WebSocket with the client mqtt.js, unmodified, as its own bundle."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from tests.kit.mqtt_js import BUNDLE, needs_package
from tests.ui.websocket_page import page_with, websocket_node

pytestmark = [pytest.mark.slow, needs_package]

SESSION: Final = """
async ([url, version, password]) => {
  const told = [];
  const options = { username: "guest", password, protocolVersion: version, reconnectPeriod: 0, clientId: "page" };
  const client = await mqtt.connectAsync(url, options);
  const came = new Promise((resolve) => client.on("message", (topic, body, packet) => {
    told.push([topic, body.toString(), packet.qos]);
    if (told.length === 3) resolve();
  }));
  await client.subscribeAsync("page/+", { qos: 2 });
  for (let qos = 0; qos <= 2; qos++) {
    await client.publishAsync("page/" + qos, "grün ".repeat(qos * 20000 + 1), { qos });
  }
  await came;
  await client.endAsync();
  return told;
}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The WebSocket of a node."""
    with websocket_node(tmp_path_factory.mktemp("mqttjs"), "web_mqtt") as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page with the client."""
    with page_with(browser, BUNDLE) as opened:
        yield opened


@pytest.mark.parametrize("version", [4, 5])
def test_a_page_publishes_and_subscribes(page: Page, url: str, version: int) -> None:
    told = page.evaluate(SESSION, [url, version, "guest"])
    assert told == [[f"page/{qos}", "grün " * (qos * 20_000 + 1), qos] for qos in range(3)]


@pytest.mark.parametrize(("version", "code"), [(4, 4), (5, 134)])
def test_a_page_learns_of_a_wrong_password(page: Page, url: str, version: int, code: int) -> None:
    told = page.evaluate(f"(args) => ({SESSION})(args).catch((fault) => fault.code)", [url, version, "wrong"])
    assert told == code
