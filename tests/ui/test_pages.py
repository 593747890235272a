"""Each page, on three nodes, and on two of them while the third is killed."""

import re
from collections.abc import Callable

import pika
import pytest
from playwright.sync_api import Page, Route, expect

from tests.kit.http_api import HttpApi
from tests.ui import content
from tests.ui.browser import Watch
from tests.ui.conftest import Site
from tests.ui.frame import LOAD_MS, confirm, expect_toast, go_to, log_in, section

pytestmark = pytest.mark.slow

FAILOVER_MS = 40_000


def open_all_sections(page: Page) -> None:
    """Unfold everything, so that nothing stays unseen."""
    page.evaluate("document.querySelectorAll('details.section').forEach(each => { each.open = true; })")


def troubles(page: Page) -> list[str]:
    """Return what is wrong with the shown page: a notice in its place, a dialog over it, values that are none."""
    found = [each.inner_text() for each in page.locator(".notice:visible, dialog[open]").all()]
    text = page.locator("main").inner_text()
    return found + re.findall(r".*\b(?:undefined|NaN|null)\b.*|.*\[object.*", text)


def test_each_page_shows_itself(
    page: Page, site: Site, filled: str, keep_picture: Callable[..., None]
) -> None:
    found = {}
    for route, heading in content.routes(filled, site.nodes[0].name).items():
        body = go_to(page, route)
        page.wait_for_load_state("networkidle")
        open_all_sections(page)
        page.locator("header .refresh button").click()
        page.wait_for_load_state("networkidle")
        if heading not in body.locator("h1").first.inner_text() or troubles(page):
            found[route] = troubles(page)
            page.keyboard.press("Escape")
        keep_picture(page, picture_name(route))
    assert not found


def picture_name(route: str) -> str:
    """`#/queues/%2F/a` → `queues-one`."""
    parts = route.split("/")
    return (parts[1] or "overview") + ("-one" if len(parts) > 2 else "")


def test_old_bookmarks_show_the_same_pages(page: Page, site: Site, filled: str) -> None:
    # RabbitMQ's UI encodes the default exchange as amq.default, and its lists carry no query.
    for route in ("#/exchanges/%2F/amq.default", "#/queues", "#/users", "#/cluster-name"):
        go_to(page, route)
        page.wait_for_load_state("networkidle")
        assert troubles(page) == []


def test_a_wrong_password_is_told(watches: Callable[..., Watch], site: Site) -> None:
    page = watches().open(site.nodes[0].management_url)
    page.get_by_label("User", exact=True).fill("guest")
    page.get_by_label("Password", exact=True).fill("no")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong user or password")


def test_a_page_that_is_chosen_while_the_cluster_is_asked_is_built_once(
    watches: Callable[..., Watch], site: Site
) -> None:
    """A page that was built before the cluster is known would be replaced under the hands of who types into it."""
    page = watches().open(site.nodes[0].management_url)
    held: list[Route] = []
    page.route("**/api/overview?*", lambda route: held.append(route))
    log_in(page)
    page.evaluate(
        """() => new Promise((resolve) => {
            window.addEventListener('hashchange', () => setTimeout(resolve));
            location.hash = '#/queues';
        })"""
    )
    expect(page.locator("main .page")).to_have_count(0)
    for route in held:
        route.continue_()
    page.unroute("**/api/overview?*")
    expect(page.locator("main h1").first).to_contain_text("Queues", timeout=LOAD_MS)


def test_logging_out_leads_to_the_login(page: Page) -> None:
    page.locator(".user-menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_who_may_only_look_is_offered_no_changes(
    watches: Callable[..., Watch], site: Site, filled: str
) -> None:
    page = watches().open(site.nodes[0].management_url)
    log_in(page, content.USER)
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    expect(page.locator(".ring")).to_be_visible()
    expect(page.get_by_role("button", name="Synchronise")).to_have_count(0)
    go_to(page, "#/policies")
    expect(page.get_by_role("button", name="Clear")).to_have_count(0)


def test_a_queue_from_its_declaration_to_its_end(page: Page, site: Site, filled: str) -> None:
    name = "made in the browser"
    HttpApi(site.nodes[0]).put(f"/queues/{content.VHOST}/made%20in%20the%20browser", {"durable": True})
    go_to(page, f"#/queues/{content.VHOST}/made%20in%20the%20browser")

    form = section(page, "queue.publish").locator("form").first
    form.locator("textarea").fill('{"big": 9007199254740993}')
    form.get_by_role("button", name="content_type").click()
    form.get_by_role("button", name="Publish", exact=True).click()
    expect_toast(page, "Published")

    browser = section(page, "queue.get")
    browser.get_by_role("button", name="Get messages").click()
    message = browser.locator("article.message")
    expect(message.locator("pre")).to_have_text('{\n  "big": 9007199254740993\n}')
    expect(message).to_contain_text("application/json")
    message.get_by_role("button", name="Hex").click()
    expect(message.locator("pre")).to_contain_text("00000000  7b 22 62 69 67")
    message.get_by_role("button", name="Base64").click()
    expect(message.locator("pre")).to_have_text("eyJiaWciOiA5MDA3MTk5MjU0NzQwOTkzfQ==")

    binding = section(page, "queue.bind").locator("form")
    binding.get_by_label("From exchange").fill(content.EXCHANGE)
    binding.get_by_label("Routing key").fill("a key/with%odd~signs")
    binding.get_by_role("button", name="Bind").click()
    expect_toast(page, "Bound")
    row = page.locator("tr", has_text="a key/with%odd~signs")
    row.get_by_role("button", name="Unbind").click()
    confirm(page, "Unbind")
    expect(row).to_have_count(0)

    section(page, "queue.danger").get_by_role("button", name="Purge messages").click()
    confirm(page, "Purge")
    expect_toast(page, "Purged")
    section(page, "queue.danger").get_by_role("button", name="Delete queue").click()
    confirm(page, "Delete")
    expect(page).to_have_url(re.compile(r"#/queues$"))
    assert HttpApi(site.nodes[0]).get(f"/queues/{content.VHOST}/made%20in%20the%20browser").status == 404
    assert name  # the name has spaces: the page's address encodes them


def test_messages_are_paged_and_stay(page: Page, site: Site, filled: str) -> None:
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    browser = section(page, "queue.get")
    browser.locator("select[name=count]").select_option("10")
    browser.get_by_role("button", name="Get messages").click()
    expect(browser.locator("article.message")).to_have_count(10)
    browser.get_by_role("button", name="Next").click()
    expect(browser.locator("article.message").first).to_contain_text("#11")
    expect(browser.locator("article.message").first.locator("pre")).to_contain_text('"order": 10')
    queue = HttpApi(site.nodes[0]).get(f"/queues/{content.VHOST}/{content.QUEUE}").json
    assert queue["messages"] == 30


def test_taking_messages_asks_first(page: Page, site: Site, filled: str) -> None:
    go_to(page, f"#/queues/{content.VHOST}/orders.paid")
    browser = section(page, "queue.get")
    browser.get_by_label("What happens to them").select_option("ack_requeue_false")
    browser.get_by_role("button", name="Get messages").click()
    expect(page.locator("dialog[open]")).to_contain_text("not come back")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    confirm_again = browser.get_by_role("button", name="Get messages")
    confirm_again.click()
    confirm(page, "Remove them")
    expect(browser).to_contain_text("no messages that are ready")


def test_a_connection_is_closed_with_a_reason(page: Page, site: Site, filled: str) -> None:
    doomed = content.connect(site.nodes[1], client_properties={"connection_name": "doomed"})
    channel = doomed.channel()
    go_to(page, "#/connections")
    link = page.locator("tr", has_text="doomed").locator("a").first
    expect(link).to_be_visible(timeout=LOAD_MS)
    link.click()
    expect(page.locator("h1")).to_contain_text("->")
    section(page, "connection.danger").get_by_role("button", name="Force close").click()
    page.get_by_label("Reason").fill("too many of you")
    page.locator("dialog[open]").get_by_role("button", name="Close it").click()
    expect(page).to_have_url(re.compile(r"#/connections$"))
    with pytest.raises(pika.exceptions.AMQPError) as told:
        channel.queue_declare("never")
    assert "too many of you" in str(told.value)


def test_a_user_from_beginning_to_end(page: Page, site: Site, filled: str) -> None:
    go_to(page, "#/users")
    form = section(page, "users.add").locator("form")
    form.get_by_label("Name", exact=True).fill("till")
    form.get_by_label("Password", exact=True).fill("secret")
    form.get_by_label("Again").fill("secret")
    form.get_by_role("button", name="management").click()
    form.get_by_role("button", name="Add user").click()
    expect_toast(page, "Added till")
    page.locator("tr", has_text="till").get_by_role("link", name="till").click()

    permissions = section(page, "user.permissions")
    permissions.get_by_label("Virtual host").fill(content.VHOST)
    permissions.get_by_label("Configure").fill("^till")
    permissions.get_by_role("button", name="Set permission").click()
    expect(permissions.locator("tr", has_text="^till")).to_be_visible()

    limits = section(page, "user.limits")
    limits.get_by_label("Value").fill("3")
    limits.get_by_role("button", name="Set limit").click()
    expect(limits.locator("tr", has_text="max-connections")).to_contain_text("3")

    tags = section(page, "user.tags")
    tags.get_by_role("textbox", name="Tags").fill("monitoring")
    tags.get_by_role("button", name="Set tags").click()
    expect(page.locator(".page-marks")).to_contain_text("monitoring")
    assert HttpApi(site.nodes[0]).as_user("till", "secret").get("/whoami").json["tags"] == ["monitoring"]

    section(page, "user.danger").get_by_role("button", name="Delete user").click()
    confirm(page, "Delete", typed="till")
    expect(page).to_have_url(re.compile(r"#/users$"))
    assert HttpApi(site.nodes[0]).get("/users/till").status == 404


def test_a_policy_says_what_it_matches(page: Page, site: Site, filled: str) -> None:
    go_to(page, "#/policies")
    form = section(page, "policies.add").locator("form")
    form.get_by_label("Virtual host").select_option(content.VHOST)
    form.get_by_label("Name", exact=True).first.fill("short lived")
    form.get_by_label("Pattern").fill("^mail$")
    form.get_by_label("Applies to").select_option("queues")
    form.get_by_role("button", name="What does it match?").click()
    expect(form.locator(".matches")).to_contain_text("1 queue")
    form.get_by_role("button", name="Message TTL").click()
    form.get_by_label("Value", exact=True).fill("60000")
    form.get_by_role("button", name="Add policy").click()
    expect_toast(page, "Set")
    row = page.locator("tr", has_text="short lived")
    expect(row).to_contain_text("60000")
    row.get_by_role("button", name="Clear").click()
    confirm(page, "Clear")
    expect(row).to_have_count(0)


def test_what_the_server_refuses_is_told_in_its_words(page: Page, filled: str) -> None:
    go_to(page, "#/policies")
    form = section(page, "policies.add").locator("form")
    form.get_by_label("Name", exact=True).first.fill("wrong")
    form.get_by_label("Pattern").fill("(")
    form.get_by_role("button", name="Message TTL").click()
    form.get_by_label("Value", exact=True).fill("1")
    form.get_by_role("button", name="Add policy").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("refused")
    expect(dialog.locator("pre")).not_to_be_empty()
    dialog.get_by_role("button", name="Close").click()


def test_a_virtual_host_is_traced_and_deleted(page: Page, site: Site, filled: str) -> None:
    go_to(page, "#/vhosts")
    form = section(page, "vhosts.add").locator("form")
    form.get_by_label("Name", exact=True).fill("a/b")
    form.get_by_role("button", name="Add virtual host").click()
    expect_toast(page, "Added a/b")
    go_to(page, "#/vhosts/a%2Fb")
    section(page, "vhost.tracing").get_by_role("button", name="Start tracing").click()
    expect(page.get_by_role("button", name="Stop tracing")).to_be_visible()
    assert HttpApi(site.nodes[1]).get("/vhosts/a%2Fb").json["tracing"] is True
    section(page, "vhost.danger").get_by_role("button", name="Delete virtual host").click()
    confirm(page, "Delete", typed="a/b")
    expect(page).to_have_url(re.compile(r"#/vhosts$"))


def test_mirrors_are_synchronised_by_a_button(page: Page, site: Site, filled: str) -> None:
    api = HttpApi(site.nodes[0])
    with content.connect(site.nodes[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("lagging", durable=True)
        for _ in range(500):
            channel.basic_publish(
                "", "lagging", b"a message that no mirror has", pika.BasicProperties(delivery_mode=2)
            )
    policy = {
        "pattern": "^lagging$",
        "definition": {"ha-mode": "all", "ha-sync-mode": "manual"},
        "priority": 9,
    }
    assert api.put(f"/policies/{content.VHOST}/manual", policy).status == 201

    go_to(page, f"#/queues/{content.VHOST}/lagging")
    expect(page.locator(".ring-node.is-behind")).to_have_count(2, timeout=LOAD_MS)
    expect(page.locator(".ring-side")).to_contain_text("no synchronised mirror")
    expect(page.locator(".copies li", has_text="lacks 500 of 500")).to_have_count(2, timeout=LOAD_MS)
    go_to(page, "#/rings")
    expect(page.locator("main table.table tr.is-endangered").first).to_contain_text(
        "lagging", timeout=LOAD_MS
    )
    expect(page.locator(".table", has_text="would be unavailable").first).to_be_visible(timeout=LOAD_MS)

    go_to(page, f"#/rings/{content.VHOST}/lagging")
    page.get_by_role("button", name="Synchronise").click()
    confirm(page, "Synchronise")
    expect(page.locator(".ring-node.is-synced")).to_have_count(2, timeout=FAILOVER_MS)
    expect(page.get_by_role("button", name="Synchronise")).to_have_count(0)
    expect(page.locator(".events")).to_contain_text("Synchronised", timeout=LOAD_MS)
    api.delete(f"/policies/{content.VHOST}/manual")
    api.delete(f"/queues/{content.VHOST}/lagging")


def test_masters_are_spread_by_a_button(page: Page, site: Site, filled: str) -> None:
    """All queues of `filled` were declared through one connection; the plan says where they go, and they go there."""
    go_to(page, "#/rebalance")
    plan = HttpApi(site.nodes[0]).get("/mirroring/rebalance-plan").json
    expect(page.locator("tr", has_text=site.nodes[0].name).first).to_be_visible(timeout=LOAD_MS)
    if not plan["moves"]:
        expect(page.locator("main")).to_contain_text("spread evenly")
        return
    expect(page.locator("tr", has_text=plan["moves"][0]["name"]).first).to_be_visible()
    page.get_by_role("button", name="Rebalance now").click()
    confirm(page, "Rebalance")
    expect(page.locator("main")).to_contain_text("spread evenly", timeout=FAILOVER_MS)
    homes = {row["name"]: row["master"] for row in HttpApi(site.nodes[0]).get("/mirroring/rings").json}
    assert all(homes[move["name"]] == move["to"] for move in plan["moves"])


def test_a_failover_is_seen_without_a_reload(
    watches: Callable[..., Watch], site: Site, filled: str, keep_picture: Callable[..., None]
) -> None:
    queue = HttpApi(site.nodes[0]).get(f"/queues/{content.VHOST}/{content.QUEUE}").json
    former = site.cluster.node(queue["node"])
    other = next(node for node in site.nodes if node.name != former.name)
    page = watches(can_lose_node=True).open(other.management_url)
    log_in(page)
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    master = page.locator(".ring-node.is-master .ring-name")
    expect(master).to_have_text(former.name)
    expect(page.locator(".ring-node.is-synced")).to_have_count(2)
    page.evaluate("window.isSamePage = true")
    former.kill()

    expect(master).not_to_have_text(former.name, timeout=FAILOVER_MS)
    expect(page.locator(".banner", has_text=f"{former.name} is down")).to_be_visible(timeout=FAILOVER_MS)
    failover = page.locator(".events li", has_text="Failover").first
    expect(failover).to_be_visible(timeout=FAILOVER_MS)
    expect(failover).to_contain_text(f"took over from {former.name}")
    for title in ("Queued messages", "Message rates"):
        plot = page.locator("figure.chart", has_text=title).locator(".plot")
        expect(plot).to_have_attribute("aria-label", re.compile("failover at "), timeout=LOAD_MS)
    expect(page.locator(".health")).to_contain_text("2 of 3")
    keep_picture(page, "failover")
    # The other pages, too, work with a node less.
    for route in ("#/", "#/queues", "#/rings", "#/connections", f"#/nodes/{former.name}", "#/rebalance"):
        go_to(page, route)
        page.wait_for_load_state("networkidle")
        expect(page.locator("dialog[open]")).to_have_count(0)
        keep_picture(page, "down" + re.sub(r"[^a-z]+", "-", route).rstrip("-"))
    assert page.evaluate("window.isSamePage") is True

    site.cluster.heal()
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    expect(page.locator(".banner")).to_have_count(0, timeout=FAILOVER_MS)
    expect(page.locator(".ring-node.is-synced")).to_have_count(2, timeout=FAILOVER_MS)


def test_a_node_that_is_gone_is_told_and_comes_back(
    watches: Callable[..., Watch], site: Site, filled: str
) -> None:
    node = site.nodes[0]
    page = watches(can_lose_node=True).open(node.management_url)
    log_in(page)
    go_to(page, "#/queues")
    node.kill()
    expect(page.locator(".banner", has_text="Not responding")).to_be_visible(timeout=FAILOVER_MS)
    expect(page.locator("main table")).to_be_visible()
    site.cluster.heal()
    expect(page.locator(".banner", has_text="Not responding")).to_have_count(0, timeout=FAILOVER_MS)
