"""Names from clients and operators that would be markup, script or links: no page makes them more than text."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from playwright.sync_api import Page, expect

from tests.kit.http_api import HttpApi, quote
from tests.kit.patience import wait_until
from tests.ui import content
from tests.ui.conftest import Site
from tests.ui.corpus import CLEAN, FOUND, MARK, NAMES
from tests.ui.frame import LOAD_MS, go_to

pytestmark = pytest.mark.slow


def put(api: HttpApi, *path: str, body: object) -> None:
    """Must work: a name that the API refuses would test nothing."""
    answer = api.put("/" + "/".join(quote(part) for part in path), body)
    assert answer.status in (201, 204), (path, answer.status, answer.text)


class Hostile:
    """A vhost of a hostile name, full of hostile things."""

    def __init__(self, site: Site) -> None:
        self.api = api = HttpApi(site.nodes[0])
        self.vhost = NAMES[0]
        put(api, "vhosts", self.vhost, body={"description": NAMES[1], "tags": [NAMES[5]]})
        put(api, "permissions", self.vhost, "guest", body={"configure": ".*", "write": ".*", "read": ".*"})
        for number, name in enumerate(NAMES):
            put(
                api,
                "users",
                name,
                body={"password": "x", "tags": f"management,{NAMES[number - 1]}".replace(",", "")},
            )
            put(
                api,
                "permissions",
                self.vhost,
                name,
                body={"configure": f"^{MARK}", "write": ".*", "read": ".*"},
            )
            definition = {"dead-letter-exchange": name, "ha-mode": "all"}
            put(
                api,
                "policies",
                self.vhost,
                name,
                body={"pattern": ".", "definition": definition, "priority": number},
            )
            put(
                api,
                "operator-policies",
                self.vhost,
                name,
                body={"pattern": ".", "definition": {"max-length": 99}},
            )
        self.connection = content.connect(
            site.nodes[0],
            self.vhost,
            client_properties={"connection_name": NAMES[1], "product": NAMES[2], NAMES[3]: NAMES[4]},
        )
        self.channel = self.connection.channel()
        for name in NAMES:
            self._declare(self.channel, name)
        self.name = ""

    @staticmethod
    def _declare(channel: Any, name: str) -> None:
        channel.exchange_declare(name, "topic", durable=True, arguments={NAMES[0]: name})
        channel.queue_declare(name, durable=True, arguments={NAMES[1]: name})
        channel.queue_bind(name, name, name, arguments={NAMES[2]: name})
        channel.basic_consume(NAMES[0], lambda *_: None, consumer_tag=name, arguments={NAMES[3]: name})
        for payload in (
            name.encode(),
            f'{{"{MARK}": "<img class={MARK} src=x onerror=window.xss=1>"}}'.encode(),
        ):
            properties = pika.BasicProperties(
                content_type=name[:200],
                headers={name: name, "list": [name]},
                app_id=name[:200],
                type=name[:200],
            )
            channel.basic_publish(name, name, payload, properties)

    def connections(self) -> list[str]:
        """The names of its connections, as the API lists them."""
        rows = self.api.get("/connections").json or []
        return [row["name"] for row in rows if row.get("vhost") == self.vhost]

    def routes(self, node: str) -> list[str]:
        """All pages that show something of it."""
        vhost = quote(self.vhost)
        connection = self.connections()[0]
        found = [
            "#/",
            "#/connections",
            "#/channels",
            "#/exchanges",
            "#/queues",
            "#/rings",
            "#/users",
            "#/vhosts",
        ]
        found += ["#/policies", "#/limits", f"#/vhosts/{vhost}", f"#/nodes/{quote(node)}", "#/rebalance"]
        found += [f"#/connections/{quote(connection)}", f"#/channels/{quote(connection + ' (1)')}"]
        for name in map(quote, NAMES):
            found += [f"#/queues/{vhost}/{name}", f"#/exchanges/{vhost}/{name}", f"#/rings/{vhost}/{name}"]
            found += [f"#/users/{name}", f"#/policies/{vhost}/{name}", f"#/operator-policies/{vhost}/{name}"]
        return found


@pytest.fixture(scope="module")
def hostile(site: Site) -> Iterator[Hostile]:
    made = Hostile(site)
    wait_until(lambda: bool(made.connections()), "the statistics have seen the connection")
    yield made
    made.connection.close()
    made.api.delete(f"/vhosts/{quote(made.vhost)}")
    for name in NAMES:
        made.api.delete(f"/users/{quote(name)}")


def expect_clean(page: Page) -> None:
    """Nothing of the corpus ran, or became an element or a link."""
    assert page.evaluate(FOUND) == CLEAN


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def test_markup_would_be_found(watches: Any, site: Site) -> None:
    watch = watches()
    page = watch.open(site.nodes[0].management_url)
    for name in NAMES[:6]:
        page.evaluate("name => { document.body.innerHTML = name; }", name)
        assert page.evaluate(FOUND) != CLEAN, name
    # And the policy of the server would have kept it from running.
    page.wait_for_timeout(200)
    assert page.evaluate("window.xss ?? null") is None
    assert any("CSP: script-src" in complaint for complaint in watch.complaints)
    watch.complaints.clear()


def test_no_name_becomes_more_than_text(page: Page, site: Site, hostile: Hostile) -> None:
    for route in hostile.routes(site.nodes[0].name):
        go_to(page, route)
        page.wait_for_load_state("networkidle")
        unfold(page)
        expect_clean(page)
        assert page.locator("dialog[open]").count() == 0, route


def test_no_message_becomes_more_than_text(page: Page, hostile: Hostile) -> None:
    for name in NAMES[1:]:
        go_to(page, f"#/queues/{quote(hostile.vhost)}/{quote(name)}")
        unfold(page)
        browser = page.locator("[data-section='queue.get']")
        browser.get_by_role("button", name="Get messages").click()
        expect(browser.locator("article.message").first).to_be_visible(timeout=LOAD_MS)
        for view in browser.locator("article.message button").all():
            view.click()
            expect_clean(page)


def test_questions_and_refusals_show_names_as_text(page: Page, hostile: Hostile) -> None:
    vhost = quote(hostile.vhost)
    for name in NAMES[:6]:
        for route, button in (
            (f"#/queues/{vhost}/{quote(name)}", "Delete queue"),
            (f"#/exchanges/{vhost}/{quote(name)}", "Delete exchange"),
            (f"#/users/{quote(name)}", "Delete user"),
            (f"#/policies/{vhost}/{quote(name)}", "Clear policy"),
        ):
            go_to(page, route)
            page.wait_for_load_state("networkidle")
            unfold(page)
            page.get_by_role("button", name=button).click()
            expect(page.locator("dialog[open]")).to_be_visible()
            expect_clean(page)
            page.keyboard.press("Escape")
    go_to(page, f"#/exchanges/{vhost}/{quote(NAMES[0])}")
    unfold(page)
    form = page.locator("[data-section='exchange.bind'] form")
    form.get_by_label("Name", exact=True).first.fill(NAMES[1] + " is not there")
    form.get_by_role("button", name="Bind").click()
    expect(page.locator("dialog[open]")).to_contain_text("is not there")
    expect_clean(page)


def test_search_and_menus_show_names_as_text(page: Page, hostile: Hostile) -> None:
    page.keyboard.press("Control+k")
    page.get_by_label("Search", exact=True).last.fill("xss")
    expect(page.locator(".results li").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect_clean(page)
    page.keyboard.press("Escape")
    page.get_by_label("Virtual host").first.select_option(f":{hostile.vhost}")
    page.wait_for_load_state("networkidle")
    expect_clean(page)


def test_addresses_that_nobody_made_show_nothing_else(page: Page, site: Site) -> None:
    for name in NAMES:
        for route in (
            f"#/queues/%2F/{quote(name)}",
            f"#/{quote(name)}",
            f"#/nodes/{quote(name)}",
            f"#/queues?name={quote(name)}",
        ):
            page.evaluate("route => { location.hash = route; }", route)
            page.wait_for_load_state("networkidle")
            expect_clean(page)


def test_who_has_such_a_name_can_log_in(watches: Any, site: Site, hostile: Hostile) -> None:
    page = watches().open(site.nodes[0].management_url)
    page.get_by_label("User", exact=True).fill(NAMES[1])
    page.get_by_label("Password", exact=True).fill("x")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_load_state("networkidle")
    expect_clean(page)
