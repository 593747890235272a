"""Lists: paging, sorting and filtering on the server, columns, all of it in the URL; actions on many rows."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.kit.http_api import HttpApi
from tests.ui.browser import Watch
from tests.ui.conftest import Site
from tests.ui.frame import LOAD_MS, confirm, expect_toast, go_to, log_in, section

pytestmark = pytest.mark.slow

VHOST: Final = "lists"
COUNT: Final = 120


@pytest.fixture(scope="module")
def queues(site: Site) -> Iterator[HttpApi]:
    """A virtual host of its own with many queues, some of them with messages."""
    api = HttpApi(site.nodes[0])
    assert api.put(f"/vhosts/{VHOST}", {}).status in (201, 204)
    for number in range(COUNT):
        answer = api.put(f"/queues/{VHOST}/q.{number:03d}", {"durable": number % 2 == 0})
        assert answer.status in (201, 204), answer.text
    for number, messages in ((7, 3), (99, 5)):
        for _ in range(messages):
            body = {
                "properties": {},
                "routing_key": f"q.{number:03d}",
                "payload": "x",
                "payload_encoding": "string",
            }
            assert api.post(f"/exchanges/{VHOST}/amq.default/publish", body).status == 200
    yield api
    api.delete(f"/vhosts/{VHOST}")


@pytest.fixture
def listed(page: Page, queues: HttpApi) -> Page:
    """The list of the queues of that virtual host."""
    page.get_by_label("Virtual host").first.select_option(label=VHOST)
    go_to(page, "#/queues")
    expect(page.locator("main tbody tr")).to_have_count(50)
    return page


def names(page: Page) -> list[str]:
    return page.locator("main tbody tr a.name[href^='#/queues/']").all_inner_texts()


def test_pages_come_from_the_server(listed: Page) -> None:
    expect(listed.locator(".count")).to_have_text(f"{COUNT} queues")
    with listed.expect_response("**/api/queues?*page=2*") as answered:
        listed.get_by_role("button", name="Next page").click()
    assert len(answered.value.json()["items"]) == 50
    expect(listed.locator("nav.pages span")).to_have_text("Page 2 of 3")
    assert names(listed)[0] == "q.050"
    listed.keyboard.press("]")
    expect(listed.locator("main tbody tr")).to_have_count(COUNT - 100)
    listed.get_by_label("Rows a page").select_option("200")
    expect(listed.locator("main tbody tr")).to_have_count(COUNT)


def test_a_list_asks_only_for_the_columns_that_it_shows(listed: Page) -> None:
    with listed.expect_request("**/api/queues?*") as asked:
        listed.keyboard.press("r")
    assert "messages_ready" in asked.value.url
    assert "message_bytes" not in asked.value.url


def test_the_url_is_the_view(listed: Page) -> None:
    listed.get_by_role("button", name="Total").click()
    expect(listed.locator("th[aria-sort=descending]")).to_contain_text("Total")
    expect(listed.locator("main tbody tr a.name").first).to_have_text("q.099")
    listed.locator("[data-filter]").fill("^q\\.0.7$")
    listed.get_by_label("Regex").check()
    expect(listed.locator("main tbody tr")).to_have_count(10)
    assert names(listed)[0] == "q.007"
    listed.locator(".columns > summary").click()
    listed.locator(".columns").get_by_label("Consumers").check()
    expect(listed.locator("main thead")).to_contain_text("Consumers")
    shown = names(listed)
    listed.reload()
    expect(listed.locator("main tbody tr")).to_have_count(10)
    assert names(listed) == shown
    assert listed.locator("[data-filter]").input_value() == "^q\\.0.7$"
    expect(listed.locator("main thead")).to_contain_text("Consumers")


def test_a_filter_that_is_no_expression_is_told(listed: Page) -> None:
    listed.get_by_label("Regex").check()
    listed.locator("[data-filter]").fill("q.(")
    expect(listed.locator(".problem")).to_have_text("Not a regular expression")
    expect(listed.locator("main tbody tr")).to_have_count(50)
    listed.locator("[data-filter]").fill("q.(1|2)")
    expect(listed.locator(".problem")).to_be_hidden()


def test_a_filter_that_was_typed_before_the_page_was_left_is_not_the_next_page_s(listed: Page) -> None:
    """A filter waits for more letters; when its page is left meanwhile, the next page's URL stays its own."""
    listed.evaluate(
        """() => new Promise((resolve) => {
            const filter = document.querySelector('[data-filter]');
            filter.value = 'q.001';
            filter.dispatchEvent(new Event('input'));
            location.hash = '#/exchanges';
            setTimeout(resolve, 250); // begun later than the filter's own delay, and not shorter: it ends later
        })"""
    )
    expect(listed.locator("main h1").first).to_contain_text("Exchanges")
    assert listed.evaluate("location.hash") == "#/exchanges"


def test_a_page_that_is_gone_leads_to_the_first(listed: Page) -> None:
    listed.evaluate("location.hash = '#/queues?page=77'")
    expect(listed.locator("nav.pages span")).to_have_text("Page 1 of 3")


def test_many_queues_are_deleted_at_once_after_a_question(listed: Page, queues: HttpApi) -> None:
    for number in (1, 2, 3):
        queues.put(f"/queues/{VHOST}/doomed.{number}", {})
    listed.locator("[data-filter]").fill("doomed")
    expect(listed.locator("main tbody tr")).to_have_count(3)
    listed.get_by_label("Select all on this page").check()
    expect(listed.locator(".actions")).to_contain_text("3 queues selected")
    listed.locator(".actions").get_by_role("button", name="Delete").click()
    expect(listed.locator("dialog[open]")).to_contain_text("doomed.2")
    listed.keyboard.press("Escape")
    assert queues.get(f"/queues/{VHOST}/doomed.2").status == 200
    listed.locator(".actions").get_by_role("button", name="Delete").click()
    confirm(listed, "Delete 3 queues", typed="3")
    expect(listed.locator("main tbody tr")).to_have_count(0)
    assert queues.get(f"/queues/{VHOST}/doomed.2").status == 404


def test_what_is_refused_of_many_is_told_one_by_one(listed: Page) -> None:
    go_to(listed, "#/exchanges")
    listed.locator("[data-filter]").fill("amq.f")
    expect(listed.locator("main tbody tr")).to_have_count(1)
    listed.locator("main tbody input").check()
    listed.locator(".actions").get_by_role("button", name="Delete").click()
    dialog = listed.locator("dialog[open]")
    dialog.get_by_role("button", name="Delete 1 exchange").click()
    expect(dialog).to_contain_text("1 exchange refused")
    expect(dialog).to_contain_text("amq.fanout")


def test_a_queue_is_added_with_arguments(listed: Page, queues: HttpApi) -> None:
    form = section(listed, "queues.add").locator("form")
    form.get_by_label("Name", exact=True).first.fill("añadida")
    form.get_by_role("button", name="Message TTL").click()
    listed.keyboard.type("soon")
    form.get_by_role("button", name="Add queue").click()
    expect(listed.locator("dialog[open]")).to_contain_text("“soon” is not a number")
    listed.keyboard.press("Escape")
    form.locator("[data-part=value]").fill("60000")
    form.get_by_role("button", name="Add queue").click()
    expect_toast(listed, "añadida")
    made = queues.get(f"/queues/{VHOST}/a%C3%B1adida").json
    assert (made["arguments"], made["durable"]) == ({"x-message-ttl": 60000}, True)
    queues.delete(f"/queues/{VHOST}/a%C3%B1adida")


def test_a_vhost_that_is_gone_is_chosen_no_more(page: Page, site: Site, queues: HttpApi) -> None:
    api = HttpApi(site.nodes[0])
    api.put("/vhosts/passing", {})
    page.keyboard.press("r")
    chooser = page.get_by_label("Virtual host").first
    expect(chooser.locator("option", has_text="passing")).to_have_count(1)
    chooser.select_option(label="passing")
    go_to(page, "#/queues")
    expect(page.locator(".count")).to_have_text("0 queues")
    api.delete("/vhosts/passing")
    expect(chooser).to_have_value("*", timeout=LOAD_MS)  # at the next refresh
    expect(page.locator(".count")).not_to_have_text("0 queues", timeout=LOAD_MS)


def test_on_a_phone_a_row_is_a_card_and_sorting_a_choice(
    watches: Callable[..., Watch], site: Site, queues: HttpApi
) -> None:
    page = watches(is_phone=True).open(site.nodes[0].management_url)
    log_in(page)
    page.get_by_label("Virtual host").first.select_option(label=VHOST)
    go_to(page, "#/queues")
    page.locator(".sorter select").select_option(label="Total")
    expect(page.locator("main tbody tr a.name").first).to_have_text("q.099")
    card = page.locator("main tbody tr").first.bounding_box()
    assert card is not None
    assert card["width"] <= 390
    assert card["height"] > 80
