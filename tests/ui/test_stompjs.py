"""A page in Chromium speaks STOMP over WebSocket with the client @stomp/stompjs 7.5.0, unmodified: tests/ui/vendor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from tests.ui.websocket_page import page_with, websocket_node

pytestmark = pytest.mark.slow

CLIENT: Final = Path(__file__).parent / "vendor" / "stomp.umd.min.js"

SESSION: Final = """
async ([url, version]) => {
  const told = [];
  const client = new StompJs.Client({
    brokerURL: url,
    connectHeaders: { login: "guest", passcode: "guest", host: "/" },
    stompVersions: new StompJs.Versions([version]),
    heartbeatIncoming: 0,
    heartbeatOutgoing: 0,
    reconnectDelay: 0,
  });
  await new Promise((resolve, reject) => {
    client.onConnect = resolve;
    client.onStompError = (frame) => reject(frame.headers.message);
    client.onWebSocketError = () => reject("no WebSocket");
    client.activate();
  });
  told.push(client.connectedVersion);
  const confirmed = new Promise((resolve) => client.watchForReceipt("r-1", resolve));
  const received = new Promise((resolve) => {
    client.subscribe("/topic/page.*", (message) => {
      told.push(message.headers.colour, message.body);
      message.ack();
      if (message.body.startsWith("last")) resolve();
    }, { ack: "client-individual" });
  });
  client.publish({ destination: "/topic/page.one", body: "grün", headers: { colour: "a:b" } });
  client.publish({ destination: "/topic/page.two", body: "last " + "x".repeat(100000), headers: { receipt: "r-1" } });
  await received;
  await confirmed;
  await client.deactivate();
  return told;
}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The WebSocket of a node."""
    with websocket_node(tmp_path_factory.mktemp("stompjs"), "web_stomp") as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page with the client."""
    with page_with(browser, CLIENT) as opened:
        yield opened


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_page_sends_and_receives(page: Page, url: str, version: str) -> None:
    told = page.evaluate(SESSION, [url, version])
    assert told[0] == version
    assert told[1:3] == ["a\\cb" if version == "1.1" else "a:b", "grün"], "it reads escapes in 1.2 only"
    assert told[4] == "last " + "x" * 100_000


def test_a_page_learns_of_a_wrong_password(page: Page, url: str) -> None:
    wrong = SESSION.replace('passcode: "guest"', 'passcode: "wrong"')
    told = page.evaluate(f"(args) => ({wrong})(args).catch((fault) => [fault])", [url, "1.2"])
    assert told == ["Bad CONNECT"]
