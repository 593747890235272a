"""axe-core finds nothing: each page with all its sections open, dialogs, the login; light and dark, and on a phone."""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.ui import content
from tests.ui.browser import Watch
from tests.ui.conftest import Site
from tests.ui.frame import LOAD_MS, go_to, log_in
from tests.ui.test_pages import open_all_sections

pytestmark = pytest.mark.slow

AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text()


def violations(page: Page) -> list[str]:
    """Return what axe complains of: the rule, its meaning, and the first elements."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: "
        + json.dumps(
            [[node["target"], node["any"][0]["message"] if node["any"] else ""] for node in each["nodes"][:3]]
        )
        for each in found["violations"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page(watches: Callable[..., Watch], site: Site, filled: str, scheme: str) -> None:
    page = watches(color_scheme=scheme).open(site.nodes[0].management_url)
    log_in(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    found = {}
    for route in content.routes(filled, site.nodes[0].name):
        go_to(page, route)
        page.wait_for_load_state("networkidle")
        open_all_sections(page)
        page.wait_for_load_state("networkidle")
        if complaints := violations(page):
            found[route] = complaints
    assert not found, json.dumps(found, indent=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_login(watches: Callable[..., Watch], site: Site, scheme: str) -> None:
    page = watches(color_scheme=scheme).open(site.nodes[0].management_url)
    expect(page.get_by_role("button", name="Log in")).to_be_visible(timeout=LOAD_MS)
    assert violations(page) == []
    page.get_by_label("User", exact=True).fill("guest")
    page.get_by_label("Password", exact=True).fill("no")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs_menus_and_messages(
    watches: Callable[..., Watch], site: Site, filled: str, scheme: str
) -> None:
    page = watches(color_scheme=scheme).open(site.nodes[0].management_url)
    log_in(page)
    go_to(page, f"#/queues/{content.VHOST}/{content.QUEUE}")
    open_all_sections(page)
    page.get_by_role("button", name="Get messages").click()
    expect(page.locator("article.message").first).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Delete queue").click()
    expect(page.locator("dialog[open]")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("orders")
    expect(page.locator("dialog[open] [role=option]").first).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.locator(".health").click()
    assert violations(page) == []


@pytest.mark.parametrize("route", ["#/", "#/queues", f"#/queues/{content.VHOST}/{content.QUEUE}", "#/rings"])
def test_on_a_phone(watches: Callable[..., Watch], site: Site, filled: str, route: str) -> None:
    page = watches(is_phone=True).open(site.nodes[0].management_url)
    log_in(page)
    go_to(page, route)
    page.wait_for_load_state("networkidle")
    assert violations(page) == []
