"""The report of spark-ops in a browser: from the disk, offline, light and dark, on a phone, on paper."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from spark_ops.reports.document import build
from spark_ops.reports.page import page as page_of
from tests.kit import report_samples as samples
from tests.kit.report_hostile import KNOWN, documents
from tests.ui.browser import DESKTOP, Watch

CREATED = "2026-11-21T09:22:10Z"
BYTES_MAX = 300_000

A4 = {"width": 703, "height": 1032}
"""A page of paper has this size within its margins."""

WIDER = """
[...document.querySelectorAll("main *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest("svg"))
  .filter((each) => getComputedStyle(each.closest("thead") ?? each).position !== "absolute")
  .map((each) => each.outerHTML.slice(0, 80))
"""
"""Elements that stick out on the right, but for heads that only listeners have."""

pytestmark = pytest.mark.slow


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a report of the samples."""
    path = tmp_path / "report.html"
    path.write_text(page_of(build(samples.health(), samples.plan(), created=CREATED)), encoding="utf-8")
    assert path.stat().st_size < BYTES_MAX
    return path.as_uri()


def opened(watch: Watch, address: str) -> Page:
    """The page, without a network; whatever it asks for but itself is a complaint."""
    watch.page.context.set_offline(True)
    watch.page.on(
        "request",
        lambda request: request.url == address or watch.complaints.append(f"request: {request.url}"),
    )
    return watch.open(address)


def has_no_scrollbar(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_the_verdict_is_seen_at_once(
    report: str, watches: Callable[..., Watch], keep_picture: Callable[..., None]
) -> None:
    """Verdict, sentence, score and figures are on the first screen; the style sheet is the policy's."""
    page = opened(watches(), report)
    for text in ("Act now", "1 critical finding", "58", "5h 14m", "99.2%"):
        place = page.locator(".hero-text, .dial-box b, .tile").filter(has_text=text).first.bounding_box()
        assert place is not None
        assert place["y"] + place["height"] < DESKTOP["height"]
    assert page.evaluate("getComputedStyle(document.querySelector('.hero h1')).fontSize") == "25px"
    assert page.evaluate("document.scripts.length") == 0
    assert has_no_scrollbar(page)
    keep_picture(page, "report")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader(report: str, watches: Callable[..., Watch], scheme: str) -> None:
    """Text can be read on its ground: its contrast is 4.5 at least (WCAG 2.1 AA)."""
    page = opened(watches(color_scheme=scheme), report)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(245, 245, 248)", "dark": "rgb(19, 19, 26)"}[scheme]
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [each for each in found if each["ratio"] < 4.5] == []


def test_a_phone(report: str, watches: Callable[..., Watch]) -> None:
    """Nothing is wider than the screen; rows are cards that name their figures."""
    page = opened(watches(is_phone=True), report)
    assert has_no_scrollbar(page)
    expect(page.locator("#moves-table thead")).not_to_be_in_viewport()
    label = "getComputedStyle(document.querySelector('#moves-table td.why'), '::before').content"
    assert page.evaluate(label) == '"Why"'
    assert page.evaluate(WIDER) == []


def test_paper(report: str, watches: Callable[..., Watch]) -> None:
    """Printed it is light, also for who reads in the dark, and has no links to click."""
    page = opened(watches(color_scheme="dark"), report)
    page.emulate_media(media="print")
    page.set_viewport_size(A4)
    assert page.evaluate(WIDER) == []
    assert page.evaluate("getComputedStyle(document.querySelector('.hero h1')).color") == "rgb(27, 27, 38)"
    expect(page.locator(".contents")).to_be_hidden()
    assert len(page.pdf(format="A4", print_background=True)) > 20_000


@pytest.mark.parametrize("name", KNOWN)
def test_hostile_names_do_nothing(tmp_path: Path, watches: Callable[..., Watch], name: str) -> None:
    """No script, no request, no dialog; the watch would complain (spark §6.23)."""
    path = tmp_path / "report.html"
    changes = {"prod-eu": name, "rabbit@n": name, "orders.created": name, "audit": name}
    path.write_text(page_of(build(*documents(changes), created=CREATED)), encoding="utf-8")
    page = opened(watches(is_phone=True), path.as_uri())
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('script, img, iframe, object, form').length") == 0
    assert has_no_scrollbar(page)


CONTRASTS = """
(() => {
  const read = (text) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const over = (top, under) => [0, 1, 2].map((part) => top[part] * top[3] + under[part] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    const above = [];
    for (let at = each; at; at = at.parentElement) above.push(read(getComputedStyle(at).backgroundColor));
    return above.reverse().reduce((under, top) => over(top, under), [1, 1, 1]);
  };
  const found = [];
  for (const each of document.querySelectorAll("main *, .top *")) {
    const text = [...each.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!text.length || each.closest("svg, .hero")) continue;
    const [a, b] = [light(read(getComputedStyle(each).color).slice(0, 3)), light(ground(each))];
    found.push({ text: text[0].data, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) });
  }
  return found;
})()
"""
