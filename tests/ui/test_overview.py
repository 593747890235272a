"""The overview and the frame around it: totals, charts, nodes, definitions, health, themes, sessions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, Route, expect

from tests.kit.http_api import HttpApi
from tests.ui.browser import Watch
from tests.ui.conftest import Site
from tests.ui.frame import LOAD_MS, confirm, expect_toast, go_to, log_in, section

pytestmark = pytest.mark.slow

DEFINITIONS: Final = {"vhosts": [{"name": "imported"}], "users": [], "permissions": []}


def test_totals_lead_to_the_lists(page: Page, filled: str) -> None:
    tile = page.locator("a.tile", has_text="Queues")
    expect(tile).to_have_attribute("href", "#/queues")
    expect(tile.locator("b")).not_to_have_text("–")


def test_charts_are_drawn_and_series_can_be_hidden(page: Page, filled: str) -> None:
    chart = page.locator("figure.chart", has_text="Queued messages")
    expect(chart.locator("canvas")).to_be_visible(timeout=LOAD_MS)
    entry = chart.get_by_role("button", name="Ready")
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(chart.get_by_role("button", name="Ready")).to_have_attribute(
        "aria-pressed", "false", timeout=LOAD_MS
    )


def test_messages_that_no_queue_takes_are_drawn_without_asking(page: Page, filled: str) -> None:
    """Messages that no queue takes are lost without a trace for their publisher, so they are drawn at once."""
    chart = page.locator("figure.chart", has_text="Message rates")
    dropped = chart.get_by_role("button", name="Unroutable (drop)")
    expect(dropped).to_have_attribute("aria-pressed", "true", timeout=LOAD_MS)


def test_a_chart_of_what_never_happened_says_so(page: Page, site: Site, filled: str) -> None:
    api = HttpApi(site.nodes[0])
    assert api.put("/queues/%2F/quiet", {}).status in (201, 204)
    go_to(page, "#/queues/%2F/quiet")
    plot = page.locator("figure.chart", has_text="Message rates").locator(".plot")
    expect(plot).to_have_attribute("data-empty", "No traffic yet", timeout=LOAD_MS)
    api.delete("/queues/%2F/quiet")


def test_resetting_statistics_says_what_is_forgotten(page: Page, filled: str) -> None:
    page.get_by_role("button", name="Reset all statistics").click()
    expect(page.locator("dialog[open]")).to_contain_text("history behind rates and charts is forgotten")
    confirm(page, "Reset")
    expect_toast(page, "Statistics are reset")


def test_the_range_of_charts_is_remembered(page: Page, filled: str) -> None:
    with page.expect_request("**/api/overview?*lengths_age=60&lengths_incr=5*"):
        page.get_by_label("Range of the charts").select_option("60|5")
    page.reload()
    expect(page.get_by_label("Range of the charts")).to_have_value("60|5", timeout=LOAD_MS)


def test_each_node_shows_what_it_uses(page: Page, site: Site, filled: str) -> None:
    rows = section(page, "overview.nodes").locator("tbody tr")
    expect(rows).to_have_count(3)
    for node in site.nodes:
        row = rows.filter(has_text=node.name)
        expect(row).to_contain_text("running")
        expect(row.locator(".meter")).to_have_count(4)
    rows.first.locator("a").click()
    expect(page.locator("main h1")).to_contain_text("Node")
    expect(page.locator(".stack-parts li").first).to_be_visible(timeout=LOAD_MS)


def test_health_at_a_glance(page: Page, site: Site, filled: str) -> None:
    expect(page.locator(".health")).to_have_text("3 nodes")
    page.locator(".health").click()
    expect(page.locator(".health-nodes li")).to_have_count(3)
    page.keyboard.press("Escape")
    expect(page.locator(".health-nodes")).to_be_hidden()


def _nodes_with(page: Page, changes: dict[str, object]) -> None:
    """The first node of each answer of /nodes is changed on its way: what an outage looks like without one."""

    def change(route: Route) -> None:
        answer = route.fetch()
        nodes = answer.json()
        nodes[0].update(changes)
        route.fulfill(response=answer, json=nodes)

    page.route("**/api/nodes?*", change)
    page.keyboard.press("r")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mem_alarm": True}, "Memory alarm on"),
        ({"disk_free_alarm": True}, "Disk alarm on"),
        ({"partitions": ["<b>other</b>@host"]}, "was partitioned from <b>other</b>@host"),
        ({"being_drained": True}, "is in maintenance"),
        ({"running": False}, "is down"),
    ],
)
def test_banners_tell_what_is_wrong(page: Page, filled: str, changes: dict[str, object], text: str) -> None:
    _nodes_with(page, changes)
    expect(page.locator(".banner", has_text=text)).to_be_visible()
    page.unroute_all(behavior="wait")
    page.keyboard.press("r")
    expect(page.locator(".banner")).to_have_count(0)


def test_a_server_that_does_not_answer(watches: Callable[..., Watch], site: Site, filled: str) -> None:
    page = watches(can_lose_node=True).open(site.nodes[0].management_url)
    log_in(page)
    expect(page.locator(".tile").first).to_be_visible(timeout=LOAD_MS)
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("r")
    expect(page.locator(".banner", has_text="Not responding")).to_contain_text("Trying again in")
    expect(page.locator(".tile").first).to_be_visible()  # what was seen stays
    page.unroute_all(behavior="wait")
    expect(page.locator(".banner")).to_have_count(0, timeout=LOAD_MS)


BREAK_OFF = """
const whole = window.fetch;
window.fetch = async (...asked) => {
  const answer = await whole(...asked);
  if (window.isBroken) answer.text = async () => { throw new TypeError('Failed to fetch'); };
  return answer;
};
"""
"""Answers end after their head, as those of a node that is killed, while `isBroken` is set."""


def test_a_server_that_ends_within_its_first_answers(
    watches: Callable[..., Watch], site: Site, filled: str
) -> None:
    watch = watches(can_lose_node=True)
    watch.page.add_init_script(BREAK_OFF)
    page = watch.open(site.nodes[0].management_url)
    log_in(page)
    expect(page.locator(".tile").first).to_be_visible(timeout=LOAD_MS)
    page.evaluate("window.isBroken = true")
    go_to(page, "#/queues")
    expect(page.locator(".banner", has_text="Not responding")).to_be_visible(timeout=LOAD_MS)
    page.evaluate("window.isBroken = false")
    expect(page.locator(".banner")).to_have_count(0, timeout=LOAD_MS)
    expect(page.locator("main table")).to_contain_text("orders.sent", timeout=LOAD_MS)


def test_definitions_go_to_a_file_and_come_back(page: Page, site: Site, filled: str, tmp_path: Path) -> None:
    api = HttpApi(site.nodes[0])
    panel = section(page, "overview.definitions")
    with page.expect_download() as download:
        panel.get_by_role("button", name="Download").click()
    saved = json.loads(download.value.path().read_text())
    assert saved == api.get("/definitions").json
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    panel.locator("input[type=file]").set_input_files(file)
    panel.get_by_role("button", name="Import").click()
    expect(page.locator("dialog[open]")).to_contain_text("The file holds 1 virtual host")
    confirm(page, "Import")
    expect_toast(page, "imported")
    assert api.get("/vhosts/imported").status == 200
    api.delete("/vhosts/imported")


def test_a_file_that_holds_no_definitions_is_told(page: Page, filled: str, tmp_path: Path) -> None:
    panel = section(page, "overview.definitions")
    file = tmp_path / "picture.json"
    file.write_bytes(b"\x89PNG\r\n")
    panel.locator("input[type=file]").set_input_files(file)
    panel.get_by_role("button", name="Import").click()
    expect(page.locator("dialog[open]")).to_contain_text("That is no JSON")


def test_dark_and_light_as_the_system_wishes_until_chosen(
    watches: Callable[..., Watch], site: Site, filled: str
) -> None:
    page = watches(color_scheme="light").open(site.nodes[0].management_url)
    log_in(page)
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(root).to_have_attribute("data-theme", "dark")
    page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-theme", "light")


def test_a_session_that_ends_leads_back_to_where_one_was(page: Page, filled: str) -> None:
    go_to(page, "#/queues?name=orders")
    expect(page.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)
    page.evaluate("""() => sessionStorage.setItem("fluffle.session",
        JSON.stringify({basic: btoa("guest:wrong"), until: Date.now() + 1e6}))""")
    page.keyboard.press("r")
    expect(page.locator(".login-problem")).to_have_text("Your session has ended. Log in again.")
    log_in(page)
    expect(page.locator("[data-filter]")).to_have_value("orders")


def test_a_second_tab_needs_no_password_and_logs_out_with_the_first(
    page: Page, site: Site, filled: str
) -> None:
    other = page.context.new_page()
    other.goto(f"{site.nodes[0].management_url}/#/queues")
    expect(other.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)
    page.locator(".user-menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(other.get_by_role("button", name="Log in")).to_be_visible()


def test_a_tab_that_is_busy_gives_its_session_late(page: Page, site: Site, filled: str) -> None:
    """The new tab shows the login page meanwhile."""
    page.add_init_script(
        """const post = BroadcastChannel.prototype.postMessage;
        BroadcastChannel.prototype.postMessage = function (message) {
          if (message.session) window.answer = () => post.call(this, message);
          else post.call(this, message);
        };"""
    )
    page.reload()
    expect(page.locator(".tile").first).to_be_visible(timeout=LOAD_MS)
    other = page.context.new_page()
    other.goto(f"{site.nodes[0].management_url}/#/queues")
    expect(other.get_by_role("button", name="Log in")).to_be_visible(timeout=LOAD_MS)
    # A tab behind another one has no animation frames, in which a page is looked at by default.
    page.wait_for_function("Boolean(window.answer)", polling=50)
    page.evaluate("answer()")
    expect(other.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)


def test_who_may_not_monitor_sees_no_nodes(watches: Callable[..., Watch], site: Site, filled: str) -> None:
    api = HttpApi(site.nodes[0])
    api.put("/users/plain", {"password": "plain", "tags": "management"})
    page = watches().open(site.nodes[0].management_url)
    log_in(page, "plain")
    expect(page.locator(".tile").first).to_be_visible()
    expect(page.locator(".health")).to_be_hidden()
    expect(page.locator("[data-section='overview.nodes']")).to_be_hidden()
    page.evaluate("location.hash = '#/users'")
    expect(page.locator(".notice")).to_contain_text("Not allowed")
    api.delete("/users/plain")
