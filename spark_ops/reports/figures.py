"""The text forms of numbers and times: one for each kind of figure, in the page and in tests.

The same style as the management UI (js/format.js): `61%`, `1.5 MiB`, `3d 4h`, `–` for unknown values.
A figure in the page is `<data value="0.6123">61%</data>`: the shown text, and the value in the document.
Times are UTC; no clock is read.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from spark_ops.reports.markup import Markup, tag

UNKNOWN: Final = "–"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PERIODS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def is_number(value: object) -> bool:
    """True for a finite number; False for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _trimmed(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def count(value: float) -> str:
    """Return `1,234,567`, rounded to a whole number."""
    return f"{round(value):,}"


def decimal(value: float) -> str:
    """Return `1.83`, `12.5`, `1,234`: three significant digits. A value other than 0 is never shown as 0."""
    text = _trimmed(value)
    return f"{value:.1e}" if text == "0" and value else text


def fixed(value: float) -> str:
    """Return `1.80`: always two digits, so that figures beside each other align."""
    return f"{value:,.2f}"


def short(value: float) -> str:
    """Return `1.2M`, for axes."""
    for least, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= least:
            return f"{_trimmed(value / (1e3 if letter == 'k' else least))}{letter}"
    return _trimmed(value)


def share(value: float) -> str:
    """Return 0.614 as `61%`; under ten per cent with one more digit."""
    percent = value * 100
    if 0 < abs(percent) < 0.05:
        return "<0.1%" if percent > 0 else ">-0.1%"
    if 99 < percent < 100:
        return f"{min(percent, 99.9):.1f}%"
    has_more = 0 < abs(percent) < 9.95
    return f"{percent:.1f}%" if has_more else f"{percent:,.0f}%"


def size(value: float) -> str:
    """Return bytes as `1.5 MiB`, by powers of 1024."""
    rest, unit = float(value), 0
    while abs(rest) >= 1024 and unit < len(_UNITS) - 1:
        rest /= 1024
        unit += 1
    return f"{round(rest)} B" if unit == 0 else f"{_trimmed(rest)} {_UNITS[unit]}"


def duration(value: float) -> str:
    """Return seconds as `3d 4h`, `5m 12s`, `0.8 s`; the two largest units."""
    if abs(value) < 60:
        return f"{_trimmed(value)} s"
    left, parts = abs(round(value)), list[str]()
    for letter, length in _PERIODS:
        many, left = divmod(left, length)
        if many or parts:
            parts.append(f"{many}{letter}")
        if len(parts) == 2:
            break
    text = " ".join(part for index, part in enumerate(parts) if not index or not part.startswith("0"))
    return f"-{text}" if value < 0 else text


KINDS: Final[dict[str, Callable[[Any], str]]] = {
    "count": count,
    "decimal": decimal,
    "score": count,
    "share": share,
    "bytes": size,
    "byte_rate": lambda value: f"{size(value)}/s",
    "rate": lambda value: f"{decimal(value)}/s",
    "seconds": duration,
    "ms": lambda value: f"{_trimmed(value)} ms",
    "fixed": fixed,
    "short": short,
    "us": lambda value: f"{_trimmed(value / 1000)} ms",
    "ratio": lambda value: f"{value:.2f}×",
    "cores": lambda value: f"{decimal(value)} cores",
    "days": lambda value: f"{_trimmed(value)} d",
}
"""The kinds of figures and the functions that write them."""


def shown(value: object, kind: str) -> str:
    """Return a value as text; `–` if it is no finite number."""
    if not is_number(value):
        return UNKNOWN
    return KINDS[kind](value)


def figure(value: object, kind: str) -> Markup:
    """Return a number as an element of the page, which also has the document's value."""
    if not is_number(value):
        return tag("span", UNKNOWN, class_="unknown")
    return tag("data", shown(value, kind), value=repr(value))


def kind_of(name: str) -> str:
    """Return the kind of a figure by the unit at the end of its name: `lag_ms`, `size_bytes`, `eta_s`, `used_share`."""
    for ends, kind in _BY_END:
        if name.endswith(ends):
            return kind
    return "decimal"


_BY_END: Final = (
    (("bytes_per_s", "bytes_s"), "byte_rate"),
    (("_per_s", "_rate"), "rate"),
    (("_us",), "us"),
    (("_ms",), "ms"),
    (("_s", "seconds", "age"), "seconds"),
    (("bytes", "memory", "disk"), "bytes"),
    (("share", "coverage", "util", "progress", "percent", "fraction"), "share"),
    (("total", "count", "ready", "unacked", "consumers", "expected", "seen", "masters", "messages"), "count"),
)


def moment(value: object) -> datetime | None:
    """Return a time of a document: ISO text with Z, or seconds since 1970. None if it is neither."""
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value.replace("Z", "+00:00"))
            return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        if isinstance(value, int | float) and is_number(value):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def iso(value: object) -> str | None:
    """Return a time as documents have it: `2026-11-21T09:00:00Z`."""
    read = moment(value)
    return read.strftime("%Y-%m-%dT%H:%M:%SZ") if read else None


def when(value: Any, *, has_date: bool = True) -> Markup:
    """Return a time in the page: `21 Nov 09:00`, with the complete time in its tooltip."""
    read = moment(value)
    if read is None:
        return tag("span", UNKNOWN, class_="unknown")
    text = f"{read.day} {read:%b %H:%M}" if has_date else f"{read:%H:%M}"
    whole = iso(value)
    return tag("time", text, datetime=whole, title=whole)
