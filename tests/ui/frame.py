"""A reader uses the frame of the UI: logging in, going to a page, opening a section, confirming."""

import re
from typing import Final

from playwright.sync_api import Locator, Page, expect

LOAD_MS: Final = 20_000
"""Long, since the machine may be busy; only a failing test waits so long."""


def log_in(page: Page, user: str = "guest", password: str | None = None) -> None:
    """By the form."""
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Password", exact=True).fill(user if password is None else password)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("nav.tabs")).to_be_visible(timeout=LOAD_MS)


def go_to(page: Page, route: str) -> Locator:
    """Show the page at a hash such as `#/queues/%2F/orders`; gives its body once it has a heading."""
    page.evaluate("route => { location.hash = route; }", route)
    expect(page).to_have_url(re.compile(re.escape(route) + r"(\?.*)?$"))
    body = page.locator("main .page")
    expect(body.locator("h1").first).to_be_visible(timeout=LOAD_MS)
    return body


def section(page: Page, name: str) -> Locator:
    """The section `data-section`, opened."""
    found = page.locator(f"details.section[data-section='{name}']")
    expect(found).to_be_attached(timeout=LOAD_MS)
    if found.get_attribute("open") is None:
        found.locator("> summary").click()
    return found


def confirm(page: Page, action: str, typed: str | None = None) -> None:
    """Answer the dialog that asks: type what it wants to be typed, press the button that does it."""
    dialog = page.locator("dialog[open]")
    expect(dialog).to_be_visible()
    if typed is not None:
        expect(dialog.get_by_role("button", name=action)).to_be_disabled()
        dialog.locator("input[type=text]").fill(typed)
    dialog.get_by_role("button", name=action).click()
    expect(dialog).to_be_hidden()


def expect_toast(page: Page, text: str) -> None:
    """A short message came."""
    expect(page.locator(".toast", has_text=text).last).to_be_visible()


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the screen."""
    width: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width
