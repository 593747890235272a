"""spark §6.23: hostile names are inert, nothing outside is needed, each number is the document's."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_ops.reports.after import compare
from spark_ops.reports.document import build
from spark_ops.reports.escape import visible
from spark_ops.reports.figures import KINDS
from spark_ops.reports.page import page
from spark_ops.reports.style import STYLE
from tests.kit import report_samples as samples
from tests.kit.report_hostile import KNOWN, documents, figures, names
from tests.spark_ops.reports.reading import Page

CREATED = "2026-11-21T09:22:10Z"
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body header main footer section article nav div span p h1 h2 h3 ul li dl dt dd a b "
        "small code bdi data time i figure figcaption table caption thead tbody tr th td details summary "
        "svg g path rect line circle defs lineargradient stop ellipse",
    )
)


def report(health: Any = None, plan: Any = None, after: Any = None) -> dict[str, Any]:
    return build(health or samples.health(), plan or samples.plan(), after, created=CREATED)


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers_in(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, str):
        yield value


HARMLESS = sorted(Page(page(report(*documents({})))).tags)


def assert_inert(read: Page) -> None:
    """No element, attribute or address that could do anything."""
    assert set(read.tags) <= ELEMENTS
    for tag, key, value in read.attributes:
        assert not key.startswith("on"), (tag, key)
        assert key not in (
            "src",
            "srcset",
            "style",
            "action",
            "formaction",
            "background",
            "xlink:href",
            "ping",
        ), key
        assert key != "href" or str(value).startswith("#"), value
    assert read.tags.count("style") == 1


@pytest.mark.slow
@SLOW
@given(cluster=names, busy=names, other=names, queue=names, grown=names, vhost=names)
def test_hostile_names_are_inert(
    cluster: str, busy: str, other: str, queue: str, grown: str, vhost: str
) -> None:
    """Hostile names change no element of the page, and its bytes are UTF-8 (spark §6.23)."""
    assume(len({busy, f"{other}3", "rabbit@n2", "rabbit@n4", "rabbit@n5"}) == 5)
    changes = {
        "prod-eu": cluster, "rabbit@n1": busy, "rabbit@n3": other + "3", "orders.created": queue,
        "mail.bounced": grown, "audit": vhost,
    }  # fmt: skip
    document = report(*documents(changes))
    text = page(document)
    text.encode("utf-8")
    read = Page(text)
    assert_inert(read)
    assert (
        sorted(read.tags) == sorted(Page(page(report(*documents(dict.fromkeys(()))))).tags) or busy >= other
    )
    for chosen in (cluster, busy, queue):
        if "<" in chosen:
            assert chosen not in text


@pytest.mark.parametrize("name", KNOWN)
def test_a_hostile_name_everywhere(name: str) -> None:
    """As cluster, node, queue and virtual host at once: as many elements as with a harmless one."""
    hostile, harmless = (
        Page(
            page(
                report(*documents({"prod-eu": each, "rabbit@n": each, "orders.created": each, "audit": each}))
            )
        )
        for each in (name, "x")
    )
    assert hostile.tags == harmless.tags
    assert_inert(hostile)


def test_nothing_outside_is_needed() -> None:
    """No address, no font, no script; the policy allows the one style sheet and no more."""
    text = page(report())
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert "<" not in STYLE
    assert "//" not in re.sub(r"<!doctype.*?>", "", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe" not in policy[1]


@pytest.mark.slow
@SLOW
@given(data=st.data())
def test_each_figure_is_the_documents(data: st.DataObject) -> None:
    """Every number in the page stands in the JSON, written as one of the kinds writes it (spark §6.23)."""
    health, plan = samples.health(minutes=8), samples.plan()
    for row in health["nodes"]:
        row.update({key: data.draw(figures) for key in ("cpu", "memory", "masters", "loop_lag_ms")})
    for forecast in health["forecasts"]:
        forecast.update({key: data.draw(figures) for key in ("now", "limit", "r2")})
    for finding in health["findings"]:
        finding["evidence"] = {"lag_ms": data.draw(figures), "size_bytes": data.draw(figures)}
    for row in plan["nodes"]:
        row.update({key: data.draw(figures) for key in ("cpu_after", "masters_after")})
    for step in plan["steps"]:
        step["cost"] = {"units": 1, "bytes": data.draw(figures), "est_s": data.draw(figures)}
    document = report(health, plan)
    known = set(numbers_in(document))
    read = Page(page(document))
    assert len(read.figures) > 150
    for value, text in read.figures:
        assert float(value) in known
        assert any(text == write(float(value)) for write in KINDS.values()), (value, text)


def test_no_figure_stands_in_prose() -> None:
    """Digits outside of figures, times and names are the document's own words, or scales."""
    document = report(after=compare(samples.plan(), samples.rows(error=0.04), created=CREATED))
    words = "\n".join(visible(text).replace("`", "") for text in texts_in(document))
    scales = re.compile(
        r"From now to .*|score of 100|CPU, \d\d:\d\d to \d\d:\d\d UTC| ?\d+%|Fit R²|fit R²|N\+1|hop p99"
    )
    for text in Page(page(document)).prose:
        if re.search(r"\d", text) and not scales.fullmatch(text.strip()):
            assert text.strip(" ·") in words, text


def test_tables_say_what_the_document_says() -> None:
    """Row by row, figure by figure."""
    document = report()
    tables = Page(page(document)).tables

    def values(table: str, label: str) -> list[list[float]]:
        return [
            [float(v) for cell in row if cell.label == label for v in cell.values] for row in tables[table]
        ]

    nodes, moves = document["nodes"], document["plan"]["moves"]
    assert values("nodes", "CPU") == [[row["cpu"]] for row in nodes]
    assert values("nodes", "Masters") == [[row["masters"]] for row in nodes]
    assert values("before-after", "CPU") == [[row["cpu_before"], row["cpu_after"]] for row in nodes]
    assert values("before-after", "Masters") == [
        [row["masters_before"], row["masters_after"]] for row in nodes
    ]
    assert values("moves", "#") == [[move["n"]] for move in moves]
    assert values("moves", "Takes about") == [[move["est_s"]] for move in moves]
    assert [row[3].text for row in tables["moves"]] == [move["queue"] for move in moves]
    assert values("forecasts", "Reached in") == [
        [one["eta_s"], *one["band"]] for one in document["forecasts"] if one["eta_s"]
    ]


def test_what_is_first_is_enough() -> None:
    """Verdict, one sentence, score and what the plan would do stand before everything else."""
    text = page(report())
    first = text[text.index("<main>") : text.index('id="findings"')]
    for words in (
        "Act now",
        "1 critical finding:",
        "48,211 messages are lost",
        "score of 100",
        "10 moves would",
    ):
        assert words in first


@pytest.mark.parametrize(
    ("health", "plan", "title"),
    [
        (samples.health(verdict="healthy", findings=[], score=100), None, "Healthy"),
        (samples.health(verdict="unknown", score=None, coverage={"share": 0.81}), None, "Too little is known"),
        (samples.health(verdict="findings"), samples.plan(), "Needs attention"),
        (None, samples.plan(), "A plan to review"),
        (None, samples.plan(steps=[], waves=[]), "A plan to review"),
        (samples.health(nodes=[], findings=[], forecasts=[], series={}, coverage=None, window=[]), None, "Act now"),
    ],
)  # fmt: skip
def test_parts_may_be_missing(health: Any, plan: Any, title: str) -> None:
    """A page is made of whatever there is."""
    text = page(build(health, plan, created=CREATED))
    read = Page(text)
    assert_inert(read)
    assert title in text
    anchors = {str(value) for _, key, value in read.attributes if key == "id"}
    assert {str(value)[1:] for _, key, value in read.attributes if key == "href"} <= anchors


def test_ids_are_unique() -> None:
    """Each anchor once."""
    ids = [value for _, key, value in Page(page(report())).attributes if key == "id"]
    assert len(ids) == len(set(ids))


def test_long_lists_are_bounded() -> None:
    """A plan of many moves and a cluster of many nodes give a page of bounded size, which says what it leaves out."""
    step = samples.plan()["steps"][0]
    steps = [{**step, "id": f"s{number}", "queue": f"q{number}"} for number in range(3000)]
    one = samples.health()["findings"][0]
    node = samples.health()["nodes"][0]
    health = samples.health(
        findings=[{**one, "id": str(number)} for number in range(2000)],
        nodes=[{**node, "node": f"n{number:04}"} for number in range(1000)],
    )
    text = page(build(health, samples.plan(steps=steps), created=CREATED))
    assert len(text) < 1_500_000
    assert '<data value="3000">3,000</data> moves are in the JSON' in text
    assert '<data value="2000">2,000</data> findings are in the JSON' in text
    assert '<data value="1000">1,000</data> nodes are in the JSON' in text
