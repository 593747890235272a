"""The UI without a mouse."""

import pytest
from playwright.sync_api import Page, expect

from tests.ui import content
from tests.ui.frame import LOAD_MS, go_to, section

pytestmark = pytest.mark.slow


def test_letters_after_g_go_to_the_tabs(page: Page, filled: str) -> None:
    for key, heading in (
        ("q", "Queues"),
        ("e", "Exchanges"),
        ("c", "Connections"),
        ("h", "Channels"),
        ("r", "Rings"),
        ("o", "Overview"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("main h1").first).to_contain_text(heading, timeout=LOAD_MS)


def test_a_list_is_filtered_walked_and_opened(page: Page, filled: str) -> None:
    go_to(page, "#/queues")
    expect(page.locator("main tbody tr").first).to_be_visible(timeout=LOAD_MS)
    page.keyboard.press("/")
    page.keyboard.type("orders.pa")
    expect(page.locator("main tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_contain_text("orders.paid")


def test_letters_that_are_typed_are_no_commands(page: Page, filled: str) -> None:
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    form = section(page, "queue.publish").locator("form").first
    form.locator("textarea").focus()
    page.keyboard.type("g q / ? t")
    expect(form.locator("textarea")).to_have_value("g q / ? t")
    expect(page.locator("main h1")).to_contain_text(content.QUEUE)


def test_a_question_is_left_by_escape_and_keeps_the_focus(page: Page, filled: str) -> None:
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    button = section(page, "queue.danger").get_by_role("button", name="Purge messages")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_be_visible()
    # The first thing that Enter would press does nothing.
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_search_finds_by_the_keyboard(page: Page, filled: str) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("orders.sent")
    expect(page.locator(".results li", has_text="orders.sent").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_contain_text("orders.sent", timeout=LOAD_MS)


def test_a_refresh_keeps_focus_and_what_is_typed(page: Page, filled: str) -> None:
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    area = section(page, "queue.publish").locator("textarea")
    area.fill("half a mess")
    area.focus()
    with page.expect_response("**/api/queues/**"):
        pass  # the next refresh
    page.wait_for_load_state("networkidle")
    page.keyboard.type("age")
    expect(area).to_be_focused()
    assert "age" in area.input_value()


def test_every_control_has_a_name(page: Page, filled: str) -> None:
    for route in (
        "#/",
        "#/queues",
        f"#/queues/{content.VHOST}/{content.QUEUE}",
        "#/rings",
        "#/users",
        "#/policies",
    ):
        go_to(page, route)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, a[href], input, select, textarea")]
                .filter((one) => one.checkVisibility() && !one.ariaLabel && !one.textContent.trim()
                  && !one.labels?.length && !one.title)
                .map((one) => one.outerHTML)"""
        )
        assert nameless == [], route
