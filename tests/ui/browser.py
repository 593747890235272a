"""Headless Chromium, and what is wrong with any page: scripts that fail, what the CSP refused, foreign requests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

BROWSERS: Final = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
"""Programs of Debian, the better first: the shell draws no windows, which cost as much as the pages in them."""
CHROMIUM: Final = os.environ.get("FLUFFLE_CHROMIUM") or next(filter(os.path.exists, BROWSERS), BROWSERS[-1])
TIMEOUT_MS: Final = 15_000  # three times the UI's own refresh interval
DESKTOP: Final = {"width": 1280, "height": 860}
PHONE: Final = {"width": 390, "height": 844}

# A page's own scripts never see this one: it is the browser's, so the CSP does not hold for it.
_REPORT_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", (e) =>
  console.error(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Fails where there is none: these tests are part of what CI shows."""
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        # Root may not use Chromium's sandbox, and CI's containers run as root. Only pages of ours are opened.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Records what a page did that no page of ours may do."""

    def __init__(self, context: BrowserContext, *, can_lose_node: bool = False) -> None:
        """can_lose_node: requests may fail and be answered 5xx, because the test stops nodes."""
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self._can_lose_node = can_lose_node
        self._origin = ""
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.add_init_script(_REPORT_VIOLATIONS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script failed: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("dialog", self._on_dialog)

    def open(self, url: str) -> Page:
        """Go to an address; from now on requests to any other origin are complaints."""
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self.page.goto(url)
        return self.page

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        text = message.text
        # Chromium's own note of an answer 4xx. That the right text reaches the reader is what tests look at.
        if text.startswith("Failed to load resource") and (self._can_lose_node or "status of 4" in text):
            return
        self.complaints.append(f"console: {text}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("data", "blob", "about"):
            return
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            self.complaints.append(f"request to another origin: {request.url}")

    def _on_dialog(self, dialog: object) -> None:
        # Ours are elements of the page. So this is `alert` of a script that must not run.
        self.dialogs.append(dialog.message)  # type: ignore[attr-defined]
        self.complaints.append(f"dialog: {dialog.message}")  # type: ignore[attr-defined]
        dialog.dismiss()  # type: ignore[attr-defined]

    def check(self) -> None:
        """No complaint."""
        assert not self.complaints, "\n".join(self.complaints)
