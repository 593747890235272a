"""A queue's page looks at messages without a change, and replays dead letters."""

import pytest
from playwright.sync_api import Page, expect

from tests.kit.http_api import HttpApi
from tests.ui import content
from tests.ui.conftest import Site
from tests.ui.frame import confirm, go_to, section

pytestmark = pytest.mark.slow

SOURCE, DEAD = "replay.source", "replay.dead"


@pytest.fixture
def letters(site: Site, filled: str) -> HttpApi:
    """Two messages that were rejected in one queue, and wait in another."""
    api, base = HttpApi(site.nodes[0]), f"/queues/{content.VHOST}"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    assert api.put(f"{base}/{DEAD}", {}).status == 201
    assert api.put(f"{base}/{SOURCE}", {"arguments": arguments}).status == 201
    for payload in ("one", "two"):
        body = {"properties": {}, "routing_key": SOURCE, "payload": payload, "payload_encoding": "string"}
        assert api.post(f"/exchanges/{content.VHOST}/amq.default/publish", body).json == {"routed": True}
    body = {"count": 2, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert len(api.post(f"{base}/{SOURCE}/get", body).json) == 2
    return api


def test_dead_letters_are_looked_at_and_replayed(page: Page, letters: HttpApi) -> None:
    go_to(page, f"#/queues/{content.VHOST}/{DEAD}")
    browser = section(page, "queue.get")
    browser.locator("select[name=count]").select_option("1")
    for payload in ("one", "two"):
        browser.get_by_role("button", name="Get messages" if payload == "one" else "Next").click()
        expect(browser.locator("article.message pre")).to_have_text(payload)
        expect(browser.locator("article.message")).not_to_contain_text("redelivered")
    expect(browser.get_by_role("button", name="Next")).to_be_disabled()

    replay = section(page, "queue.replay")
    replay.get_by_role("button", name="Replay").click()
    expect(replay).to_contain_text(f"2 messages of 2 would go back: 2 to {SOURCE}.")
    replay.locator("input[name=dry]").uncheck()
    replay.locator("input[name=count]").fill("1")
    replay.get_by_role("button", name="Replay").click()
    confirm(page, "Replay")
    expect(replay).to_contain_text(f"1 message of 1 went back: 1 to {SOURCE}.")
    rows = letters.get(f"/queues/{content.VHOST}/{SOURCE}/messages").json["messages"]
    assert [row["payload"] for row in rows] == ["one"]
