"""The UI on a phone: nothing is wider than its screen, and what is to be touched is large enough."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.ui import content
from tests.ui.browser import PHONE, Watch
from tests.ui.conftest import Site
from tests.ui.frame import go_to, log_in, overflow

pytestmark = pytest.mark.slow


def test_no_page_is_wider_than_the_screen(
    watches: Callable[..., Watch], site: Site, filled: str, keep_picture: Callable[..., None]
) -> None:
    page = watches(is_phone=True).open(site.nodes[0].management_url)
    log_in(page)
    for route in content.routes(filled, site.nodes[0].name):
        go_to(page, route)
        page.wait_for_load_state("networkidle")
        page.evaluate("document.querySelectorAll('details.section').forEach(each => { each.open = true; })")
        assert overflow(page) <= 0, route
        if route in ("#/", "#/queues", "#/rings") or route.startswith(f"#/queues/{content.VHOST}"):
            keep_picture(
                page,
                "phone"
                + {"#/": "-overview"}.get(route, route[1:].split("/")[1] and "-" + route.split("/")[1]),
            )


def test_the_ring_and_the_tabs_are_reachable(watches: Callable[..., Watch], site: Site, filled: str) -> None:
    page = watches(is_phone=True).open(site.nodes[0].management_url)
    log_in(page)
    page.wait_for_load_state(
        "networkidle"
    )  # what the first answers change must not move a tab under the finger
    page.locator("nav.tabs").get_by_role("link", name="Rings").tap()
    expect(page.locator("main h1")).to_contain_text("Rings")
    page.get_by_role("link", name=content.QUEUE).first.tap()
    ring = page.locator("svg.ring")
    expect(ring).to_be_visible()
    box = ring.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
