"""HTML and SVG as values: all text is escaped unless it is `Markup`.

Only `trusted` puts a string into a page unescaped, and it is called on our own constants only.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from spark_ops.reports.escape import html_text


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | Markup | Iterable[Content] | None"
Attribute: TypeAlias = str | int | float | bool | None

NOTHING: Final = Markup("")

_VOID: Final = frozenset({"meta", "br", "hr", "col", "link"})
_EMPTY_IN_SVG: Final = frozenset({"path", "rect", "line", "circle", "polyline", "polygon"})


def trusted(text: str) -> Markup:
    """Return a constant of ours as HTML. Never call it on text from a document."""
    return Markup(text)


def flat(content: Content) -> Markup:
    """Return content as one piece of HTML: strings escaped, parts joined, None left out."""
    if content is None:
        return NOTHING
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html_text(content))
    return Markup("".join(flat(part) for part in content))


def number(value: float) -> str:
    """Return a coordinate as text: at most two decimal places, no exponent."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def tag(name: str, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element. Attributes: `class_` is class, `aria_label` aria-label; None and False leave one out, True
    has no value. Names of elements and attributes must be ours: they are not escaped."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(label)
        else:
            text = value if isinstance(value, str) else number(value)
            parts.append(f'{label}="{html_text(text)}"')
    opened = " ".join(parts)
    if name in _VOID:
        return Markup(f"<{opened}>")
    inside = flat(content)
    if name in _EMPTY_IN_SVG and not inside:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{inside}</{name}>")
