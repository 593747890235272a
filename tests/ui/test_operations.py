"""Operators look for types, long lists, places without a copy, maintenance mode, events, the log."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Page, Route, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.kit.http_api import HttpApi, quote
from tests.kit.patience import wait_until
from tests.ui import content
from tests.ui.browser import Watch
from tests.ui.conftest import Site
from tests.ui.frame import LOAD_MS, confirm, expect_toast, go_to, log_in, section

pytestmark = pytest.mark.slow

FAILOVER_MS = 40_000
OWN = f"{content.VHOST}/{content.QUEUE}"


@pytest.fixture
def api(site: Site, filled: str) -> HttpApi:
    return HttpApi(site.nodes[0])


# --- queues ---


def test_a_queue_has_a_type(page: Page, api: HttpApi) -> None:
    go_to(page, "#/queues")
    form = section(page, "queues.add").locator("form")
    form.locator("select[name=vhost]").select_option(content.VHOST)
    form.get_by_label("Name", exact=True).first.fill("ledger")
    form.locator("select[name=type]").select_option("quorum")
    expect(form.get_by_label("Durability")).to_be_hidden()
    form.get_by_role("button", name="Delivery limit").click()
    page.keyboard.type("5")
    form.get_by_role("button", name="Add queue").click()
    expect_toast(page, "ledger")
    made = api.get(f"/queues/{content.VHOST}/ledger").json
    assert (made["type"], made["arguments"]["x-delivery-limit"]) == ("quorum", 5)
    expect(page.locator("main thead")).to_contain_text("Type")
    expect(page.locator("main tbody tr", has_text="ledger").locator("td[data-label=Type]")).to_have_text(
        "quorum"
    )
    api.delete(f"/queues/{content.VHOST}/ledger")


def test_a_refusal_says_of_what(page: Page, api: HttpApi) -> None:
    go_to(page, "#/queues")
    form = section(page, "queues.add").locator("form")
    name = form.get_by_label("Name", exact=True).first
    name.fill("amq.bad")
    form.get_by_role("button", name="Add queue").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("h2")).to_have_text("The queue amq.bad was refused")
    dialog.get_by_role("button", name="Close").click()
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(name).to_be_focused()
    name.fill("amq.bade")
    expect(name).not_to_have_attribute("aria-invalid", "true")


# --- long lists ---


@pytest.fixture
def crowded(api: HttpApi) -> Iterator[str]:
    """An exchange with many bindings."""
    name = "crowded"
    api.put(f"/exchanges/{content.VHOST}/{name}", {"type": "topic"})
    for number in range(120):
        where = f"/bindings/{content.VHOST}/e/{name}/q/mail"
        assert api.post(where, {"routing_key": f"key.{number:03d}"}).status == 201
    yield name
    api.delete(f"/exchanges/{content.VHOST}/{name}")


def test_bindings_of_an_exchange_come_in_pages(page: Page, crowded: str) -> None:
    body = go_to(page, f"#/exchanges/{content.VHOST}/{crowded}")
    bindings = section(page, "exchange.bindings")
    rows = bindings.locator("tbody tr", has_text="key.")
    expect(rows).to_have_count(50, timeout=LOAD_MS)
    expect(bindings.locator(".count").first).to_have_text("120 bindings")
    with page.expect_response("**/bindings/source?*page=2*") as answered:
        bindings.get_by_role("button", name="Next page").first.click()
    assert len(answered.value.json()["items"]) == 50
    expect(rows.first).to_contain_text("key.050")
    bindings.get_by_label("Filter by destination or key").fill("key.11")
    expect(rows).to_have_count(10)
    page.reload()
    expect(rows).to_have_count(10, timeout=LOAD_MS)
    assert "name=key.11" in page.url
    rows.first.get_by_role("button", name="Unbind").click()
    confirm(page, "Unbind")
    expect(rows).to_have_count(9)
    expect(body.locator("h1").first).to_contain_text(crowded)


@pytest.fixture
def later(api: HttpApi) -> Iterator[str]:
    """A delayed exchange with three messages that wait for an hour."""
    where = f"/exchanges/{content.VHOST}/later"
    api.put(where, {"type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "direct"}})
    for number in range(3):
        message = {
            "properties": {"headers": {"x-delay": 3_600_000}},
            "routing_key": f"due.{number}",
            "payload": f"number {number}",
            "payload_encoding": "string",
        }
        assert api.post(f"{where}/publish", message).status == 200
    yield "later"
    api.delete(where)


def test_delayed_messages_are_shown_and_cancelled(page: Page, later: str) -> None:
    go_to(page, f"#/exchanges/{content.VHOST}/{later}")
    delayed = section(page, "exchange.delayed")
    delayed.get_by_role("button", name="Show messages").click()
    rows = delayed.locator("tbody tr")
    expect(rows).to_have_count(3, timeout=LOAD_MS)
    expect(rows.nth(1)).to_contain_text("due.1")
    expect(rows.nth(1)).to_contain_text("number 1")
    rows.nth(1).get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel the message")
    expect(rows).to_have_count(2, timeout=LOAD_MS)
    expect(delayed).not_to_contain_text("due.1")


def test_what_rebalances_is_above_what_would_move(page: Page, site: Site, api: HttpApi) -> None:
    """All masters on one node make a plan; the button is in sight however long it is."""
    names = [f"orders.heap.{number:02d}" for number in range(60)]
    for name in names:
        assert (
            api.put(f"/queues/{content.VHOST}/{name}", {"durable": True, "node": site.nodes[0].name}).status
            == 201
        )
    wait_until(lambda: len(api.get("/mirroring/rebalance-plan").json["moves"]) >= 30, "a long plan")
    go_to(page, "#/rebalance")
    button = page.get_by_role("button", name="Rebalance now")
    expect(button).to_be_in_viewport(timeout=LOAD_MS)
    assert page.evaluate("scrollY") == 0
    page.get_by_label("Rows a page").select_option("10")
    expect(section(page, "rebalance.moves").locator("tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("nav.pages span")).to_contain_text("Page 2")
    for name in names:
        api.delete(f"/queues/{content.VHOST}/{name}")


# --- mirrors, nodes ---


def test_a_mirror_is_made_the_master(page: Page, api: HttpApi) -> None:
    go_to(page, f"#/queues/{OWN}")
    expect(page.locator(".ring-node.is-synced")).to_have_count(2, timeout=FAILOVER_MS)
    before = api.get(f"/queues/{OWN}").json["node"]
    button = page.get_by_role("button", name=re.compile("Make .* the master")).first
    wanted = re.sub("Make (.*) the master", r"\1", button.get_attribute("aria-label") or "")
    assert wanted != before
    button.click()
    confirm(page, "Make it the master")
    expect(page.locator(".ring-node.is-master .ring-name")).to_have_text(wanted, timeout=FAILOVER_MS)
    assert api.get(f"/queues/{OWN}").json["node"] == wanted
    expect(page.locator(".events")).to_contain_text("Moved", timeout=LOAD_MS)


def test_who_may_only_look_moves_nothing(watches: Callable[..., Watch], site: Site, filled: str) -> None:
    page = watches().open(site.nodes[0].management_url)
    log_in(page, content.USER)
    go_to(page, f"#/queues/{OWN}")
    expect(page.locator(".copies li").first).to_be_visible(timeout=LOAD_MS)
    expect(page.get_by_role("button", name=re.compile("the master"))).to_have_count(0)
    go_to(page, f"#/nodes/{site.nodes[0].name}")
    expect(page.get_by_role("link", name="Log")).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    for route in ("#/rebalance", "#/users"):
        expect(go_to(page, route)).to_contain_text("This page is for users with the tag administrator")


def test_a_node_is_drained_and_revived(page: Page, site: Site, api: HttpApi) -> None:
    name = site.nodes[1].name
    go_to(page, f"#/nodes/{quote(name)}")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator("dialog[open]")).to_contain_text("clients are disconnected")
    confirm(page, "Drain")
    expect(page.locator(".page-head .badge", has_text="maintenance")).to_be_visible(timeout=FAILOVER_MS)
    assert api.get(f"/nodes/{name}").json["being_drained"] is True

    def revived() -> bool:
        button = page.get_by_role("button", name="Revive")
        if button.is_visible():  # else it was heard, and the node is on its way back
            with suppress(AssertionError, PlaywrightTimeout):
                button.click()
                confirm(page, "Revive")
        return bool(api.get(f"/nodes/{name}").json["being_drained"]) is False

    wait_until(revived, "the node is back")
    expect(page.get_by_role("button", name="Drain")).to_be_visible(timeout=FAILOVER_MS)
    expect(page.locator(".page-head .badge", has_text="maintenance")).to_have_count(0)


def test_a_lost_copy_leaves_a_grey_place(watches: Callable[..., Watch], site: Site, api: HttpApi) -> None:
    wait_until(
        lambda: len(api.get(f"/queues/{OWN}").json.get("synchronised_slave_nodes", [])) == 2, "three copies"
    )
    master = api.get(f"/queues/{OWN}").json["node"]
    lost = next(node for node in site.nodes if node.name != master)
    other = next(node for node in site.nodes if node is not lost)
    page = watches(can_lose_node=True).open(other.management_url)
    log_in(page)
    go_to(page, f"#/queues/{OWN}")
    expect(page.locator(".ring-node.is-absent")).to_have_count(0)
    lost.kill()
    grey = page.locator(".ring-node.is-absent")
    expect(grey.locator(".ring-name")).to_have_text(lost.name, timeout=FAILOVER_MS)
    expect(grey).to_contain_text("no copy: down")
    expect(page.locator(".copies li", has_text=lost.name)).to_contain_text("no copy: down")
    expect(page.locator(".ring-hop")).to_have_count(2)
    go_to(page, "#/rings")
    row = page.locator("main tbody tr", has_text=content.QUEUE).first
    expect(row.locator(".cell.is-absent")).to_have_count(1, timeout=FAILOVER_MS)

    go_to(page, "#/events")
    events = page.locator("main tbody tr")
    expect(events.filter(has_text="Mirror lost").first).to_be_visible(timeout=FAILOVER_MS)
    page.get_by_label("Kind of event").select_option("mirror-lost")
    expect(events.filter(has_not_text="Mirror lost")).to_have_count(0)
    page.locator("[data-filter]").fill("no such queue")
    expect(page.locator("main")).to_contain_text("No such events recently.")
    page.locator("[data-filter]").fill(content.QUEUE)
    expect(events.first.locator("a", has_text=content.QUEUE)).to_be_visible()
    assert "kind=mirror-lost" in page.url
    site.cluster.heal()


# --- the log ---


def test_lines_of_the_log_come_by_themselves(page: Page, site: Site, api: HttpApi) -> None:
    other = site.nodes[1]
    go_to(page, f"#/nodes/{quote(other.name)}")
    page.get_by_role("link", name="Log").click()
    lines = page.locator(".log-line")
    expect(page.get_by_label("Node")).to_have_value(other.name, timeout=LOAD_MS)
    expect(lines.first).to_be_visible(timeout=LOAD_MS)
    with content.connect(other, client_properties={"connection_name": "just looking"}):
        expect(lines.filter(has_text="just looking").first).to_be_visible(timeout=LOAD_MS)
    page.get_by_label("Filter lines").fill("authenticated")
    expect(lines.filter(has_not_text="authenticated")).to_have_count(0)
    expect(lines.first).to_be_visible()
    page.get_by_label("Filter lines").fill("")
    page.get_by_label("Level").select_option("error")
    expect(lines.filter(has_text="[info]")).to_have_count(0)
    page.get_by_label("Level").select_option("debug")
    page.get_by_role("button", name="Pause").click()
    with content.connect(other, client_properties={"connection_name": "not seen yet"}):
        pass
    wait_until(
        lambda: any(
            "not seen yet" in line["text"] for line in api.get(f"/nodes/{other.name}/log").json["lines"]
        ),
        "the line is written",
    )
    assert lines.filter(has_text="not seen yet").count() == 0
    page.get_by_role("button", name="Go on").click()
    expect(lines.filter(has_text="not seen yet").first).to_be_visible(timeout=LOAD_MS)


# --- the frame ---


def test_the_clock_tells_the_age_of_what_is_shown(page: Page, filled: str) -> None:
    clock = page.locator("header .updated")
    expect(clock).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    page.get_by_label("Refresh", exact=True).select_option("0")
    page.wait_for_load_state("networkidle")
    shown = clock.inner_text()
    page.wait_for_function("shown => new Date().toTimeString().slice(0, 8) > shown", arg=shown)
    go_to(page, "#/queues")
    expect(page.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)
    expect(clock).not_to_have_text(shown)  # the page that is shown was loaded later
    expect(clock).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))


def test_the_clock_stands_while_nobody_answers(
    watches: Callable[..., Watch], site: Site, filled: str
) -> None:
    page = watches(can_lose_node=True).open(site.nodes[0].management_url)
    log_in(page)
    go_to(page, "#/queues")
    expect(page.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)
    clock = page.locator("header .updated")
    page.route("**/api/queues?*", lambda route: route.abort())
    page.locator("header .refresh button").click()
    page.wait_for_load_state("networkidle")
    shown = clock.inner_text()
    page.locator("header .refresh button").click()
    page.wait_for_function("shown => new Date().toTimeString().slice(0, 8) > shown", arg=shown)
    page.locator("header .refresh button").click()
    page.wait_for_load_state("networkidle")
    assert clock.inner_text() == shown


def test_back_closes_a_dialog(page: Page, filled: str) -> None:
    go_to(page, "#/queues")
    go_to(page, "#/exchanges")
    page.keyboard.press("Control+k")
    expect(page.locator("dialog[open]")).to_be_visible()
    page.go_back()
    expect(page.locator("h1")).to_have_text("Queues")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.go_forward()
    expect(page.locator("h1")).to_have_text("Exchanges")
    expect(page.locator("dialog")).to_have_count(0)


def test_the_skip_link_is_out_of_sight_with_its_shadow(page: Page) -> None:
    skip = page.locator(".skip")
    assert skip.evaluate("each => getComputedStyle(each).boxShadow") == "none"
    skip.focus()
    expect(skip).to_be_in_viewport()
    assert skip.evaluate("each => getComputedStyle(each).boxShadow") != "none"


def test_figures_say_what_they_are(page: Page, site: Site, filled: str) -> None:
    """No bare words of RabbitMQ's that mean nothing here, and the time zone somewhere."""
    go_to(page, "#/")
    info = page.locator("main td.info-cell").first
    expect(info).to_contain_text("plug-ins", timeout=LOAD_MS)
    expect(info).to_contain_text("memory: rss")
    expect(page.locator("footer")).to_contain_text("Times: UTC")
    go_to(page, f"#/nodes/{quote(site.nodes[0].name)}")
    details = section(page, "node.details")
    expect(details).to_contain_text(re.compile(r"Event-loop lag\s*[\d.]+ ms"), timeout=LOAD_MS)
    for word in ("Run queue", "Processes", "Net tick"):
        expect(details).not_to_contain_text(word)
    chart = page.locator("figure.chart", has_text="Event-loop lag")
    expect(chart.locator(".plot")).to_have_attribute("aria-label", re.compile("started at "), timeout=LOAD_MS)


def test_rot_on_a_node_is_shown(page: Page, site: Site, filled: str) -> None:
    """The page shows how far the search for rot has come, and how many files are known to be damaged."""
    name = site.nodes[0].name

    def damage(route: Route) -> None:
        answer = route.fetch()
        node = answer.json()
        node["store_scrub"] |= {"findings": 3, "damaged_files": 2}
        route.fulfill(response=answer, json=node)

    go_to(page, f"#/nodes/{quote(name)}")
    details = section(page, "node.details")
    expect(details).to_contain_text(
        re.compile(r"Search for rot\s*[\d.]+ \w+ read, 0 findings"), timeout=LOAD_MS
    )
    expect(page.locator("main")).not_to_contain_text("damaged files")
    page.route(re.compile(rf"/api/nodes/{re.escape(quote(name))}(\?|$)"), damage)
    page.keyboard.press("r")
    expect(details).to_contain_text("read, 3 findings")
    expect(page.locator("main")).to_contain_text("damaged files: 2")
    page.unroute_all(behavior="wait")
