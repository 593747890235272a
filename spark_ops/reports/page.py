"""A report is one HTML file that needs nothing else: no network, no script, no font.

Its content security policy allows its one style sheet by hash and forbids all else, so even an unescaped name would
do nothing. The top of the page has the verdict, one sentence, the score and five figures.
Source: spark §3.6.
"""

import base64
import hashlib
from typing import Any, Final

from spark_ops.reports import plan_sections, sections, svg
from spark_ops.reports.figures import figure, is_number, shown, when
from spark_ops.reports.markup import Content, Markup, flat, tag, trusted
from spark_ops.reports.parts import ARROW, LOGO, icon, name, prose
from spark_ops.reports.style import STYLE

_ICON_OF: Final = {"as-predicted": "healthy", "not-as-predicted": "findings", "too-small": "unknown"}
_LEVELS: Final = {
    "critical": "bad",
    "findings": "warn",
    "healthy": "good",
    "unknown": "quiet",
    "plan": "plan",
    "as-predicted": "good",
    "not-as-predicted": "warn",
    "too-small": "quiet",
}


def page(document: dict[str, Any]) -> str:
    """Return the page of a report document. It has only characters that UTF-8 can encode."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{document['title']} · {document['cluster']} · Fluffle"
    parts = _parts(document)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", trusted(STYLE)),
    )
    body = tag(
        "body", _top(document), tag("main", _hero(document), _tiles(document), _contents(parts),
        [content for _, _, content in parts]), tag("footer", tag("p", "Fluffle · spark-ops report")),
    )  # fmt: skip
    return f"<!doctype html>\n{flat(tag('html', head, body, lang='en'))}\n"


def _parts(document: dict[str, Any]) -> list[tuple[str, str, Markup]]:
    """Return the sections that have content: anchor, name, content."""
    candidates = (
        ("after", "Result", plan_sections.after(document)),
        ("findings", "Findings", sections.findings(document)),
        ("plan", "Plan", plan_sections.plan(document)),
        ("moves", "Moves", plan_sections.moves(document)),
        ("nodes", "Nodes", sections.nodes(document)),
        ("forecasts", "Forecasts", sections.forecasts(document)),
        ("time", "Over time", sections.over_time(document)),
        ("coverage", "Coverage", sections.coverage(document)),
        ("sources", "Sources", sections.sources(document)),
    )
    return [(anchor, label, content) for anchor, label, content in candidates if content is not None]


def _top(document: dict[str, Any]) -> Markup:
    return tag(
        "header",
        tag("span", LOGO, "Fluffle", class_="brand"),
        tag("span", "Cluster report", class_="what-it-is"),
        tag("span", name(document["cluster"], 60), class_="cluster"),
        tag("span", when(document["created"]), " UTC", class_="written"),
        class_="top",
    )


def _contents(parts: list[tuple[str, str, Markup]]) -> Markup:
    links = (tag("li", tag("a", label, href=f"#{anchor}")) for anchor, label, _ in parts)
    return tag("nav", tag("ul", links), class_="contents", aria_label="Contents")


def _hero(document: dict[str, Any]) -> Markup:
    verdict = str(document["verdict"])
    level = _LEVELS.get(verdict, "quiet")
    drawn = _ICON_OF.get(verdict, verdict if verdict in _LEVELS else "unknown")
    words = tag(
        "div",
        tag("p", icon(drawn), document["title"], class_="verdict"),
        tag("h1", document["headline"]),
        tag("p", prose(document["lead"]), class_="lead-text") if document["lead"] else None,
        class_="hero-text",
    )
    return tag("section", words, _score(document), class_=f"hero is-{level}", aria_label="Verdict")


def _score(document: dict[str, Any]) -> Markup | None:
    now, planned = document["score"]["now"], document["score"]["planned"]
    if not is_number(now):
        return None
    planned = planned if is_number(planned) and planned != now and not document["after"] else None
    word = "balance" if document["score"]["of"] == "balance" else "score"
    level = "good" if now >= 90 else "warn" if now >= 60 else "bad"
    title = f"{word.capitalize()} {shown(now, 'score')} of 100"
    then = None
    if planned is not None:
        title += f", {shown(planned, 'score')} with the plan"
        then = tag("span", ARROW, " ", figure(planned, "score"), " with the plan", class_="score-then")
    return tag(
        "div",
        tag(
            "div",
            svg.dial(now, planned, title=title, level=level),
            tag("b", figure(now, "score")),
            class_="dial-box",
        ),
        tag("span", f"{word} of 100", class_="score-word"),
        then,
        class_="score",
    )


def _tiles(document: dict[str, Any]) -> Markup | None:
    made = [tile for tile in (_tile_findings(document), _tile_limit(document), *_tiles_plan(document),
                              _tile_coverage(document)) if tile]  # fmt: skip
    return tag("ul", made, class_="tiles") if made else None


def _tile(value: Content, label: Content, level: str = "quiet") -> Markup:
    return tag("li", tag("b", value), tag("span", label), class_=f"tile is-{level}")


def _tile_findings(document: dict[str, Any]) -> Markup | None:
    if not document["has_health"]:
        return None
    counts = document["counts"]
    total = counts["all"]
    if not total:
        return _tile("None", "findings", "good")
    words = {"crit": ("critical", "critical"), "warn": ("warning", "warnings"), "info": ("note", "notes")}
    parts: list[Content] = []
    for severity, word in words.items():
        if counts[severity]:
            parts.append(
                [", " if parts else "", figure(counts[severity], "count"), f" {word[counts[severity] != 1]}"]
            )
    worst = "bad" if counts["crit"] else "warn" if counts["warn"] else "info"
    return _tile(figure(total, "count"), ["findings: ", parts], worst)


def _tile_limit(document: dict[str, Any]) -> Markup | None:
    if not document["has_health"]:
        return None
    coming = next((one for one in document["forecasts"] if is_number(one.get("eta_s"))), None)
    if coming is None:
        return _tile("None", "limits in sight", "good")
    level = "bad" if coming["eta_s"] < 2 * 3600 else "warn" if coming["eta_s"] < sections.DAY_S else "quiet"
    of = (str(coming.get("resource")), " limit of ", name(coming.get("node"), 30))
    return _tile(figure(coming["eta_s"], "seconds"), ("to the ", of), level)


def _tiles_plan(document: dict[str, Any]) -> list[Markup]:
    plan, after = document["plan"], document["after"]
    if after:
        done = after["moves"]
        level = "good" if done["arrived"] + done["gone"] == done["planned"] else "warn"
        arrived = _tile(
            (figure(done["arrived"], "count"), " / ", figure(done["planned"], "count")),
            "moves arrived",
            level,
        )
        error = after["error"]["cpu_max"]
        return [arrived, _tile(figure(error, "share"), "largest error of a node's CPU")]
    if plan is None:
        return []
    summary = plan["summary"]
    copied = summary.get("bytes")
    cost: list[Content] = (
        [figure(copied, "bytes"), " to copy"] if is_number(copied) and copied else ["nothing to copy"]
    )
    if is_number(summary.get("eta_s")):
        cost += [", about ", figure(summary["eta_s"], "seconds")]
    moves = _tile(figure(summary["moves"], "count"), ("moves: ", cost), "plan")
    return [moves]


def _tile_coverage(document: dict[str, Any]) -> Markup | None:
    share = (document["coverage"] or {}).get("share")
    if share is None or not is_number(share):
        return None
    return _tile(figure(share, "share"), "of the telemetry seen", "good" if share >= 0.95 else "bad")
