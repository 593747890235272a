"""Names that are meant to do harm, and documents full of them."""

from typing import Any

from hypothesis import strategies as st

from spark_ops.documents import content_hash
from tests.kit import report_samples as samples

KNOWN = (
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</title></svg><svg onload=alert(1)>",
    '"><a href="javascript:alert(1)">',
    "<!--",
    "]]>",
    "=cmd|'/c calc'!A0",
    "@SUM(1+1)",
    "+1",
    "-1",
    "＝1+1",
    "a\nb\r\n=1",
    "\u202egnp.exe",
    "\x00",
    "\ud800",
    "&amp;",
    "{{7*7}}",
    "https://example.org/x",
    "ü" * 127,
    "a;b,c\td",
)

names = st.one_of(
    st.sampled_from(KNOWN),
    st.text(st.characters(exclude_characters="`"), min_size=1, max_size=90),
)
figures = st.one_of(
    st.none(),
    st.integers(0, 10**12),
    st.floats(0, 1e15, allow_nan=False).map(lambda value: float(f"{value:.6g}")),
    st.sampled_from((0, 0.0, 1.0, 0.999999, 0.0994, 0.00001)),
)


def renamed(value: Any, names_by: dict[str, str]) -> Any:
    """Return the document with other names: as keys, as values, and within sentences."""
    if isinstance(value, dict):
        return {renamed(key, names_by): renamed(inner, names_by) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, names_by) for inner in value]
    if isinstance(value, str):
        for old, new in names_by.items():
            value = value.replace(old, new)
    return value


def documents(changes: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sample documents of health and plan with other names."""
    health, plan = renamed(samples.health(minutes=8), changes), renamed(samples.plan(), changes)
    body = {key: value for key, value in plan.items() if key != "plan_id"}
    return health, {**body, "plan_id": content_hash(body)}
