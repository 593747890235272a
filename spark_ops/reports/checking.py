"""Checks that the parts of documents from files have the right types, before a report is made of them.

Names and texts may be anything; shapes may not. Parts that no shape names are not used, or are checked where they are.
"""

from typing import Any, Final, TypeAlias

Shape: TypeAlias = "type | tuple[Shape, ...] | list[Shape] | dict[str, Shape]"

NUMBER: Final = (int, float, type(None))
TEXT: Final = (str, type(None))
TIME: Final = (str, int, float, type(None))

_SUBJECT: Final[Shape] = {"node": TEXT, "vhost": TEXT, "queue": TEXT, "to_node": TEXT, "cause": TEXT}
_GROWING: Final[Shape] = {"vhost": TEXT, "queue": TEXT, "slope_per_s": NUMBER}

HEALTH: Final[Shape] = {
    "cluster": str,
    "window": [TIME],
    "verdict": str,
    "score": NUMBER,
    "coverage": (
        type(None),
        {
            "share": NUMBER,
            "missing": (type(None), [{"node": TEXT, "from": TIME, "to": TIME}]),
            "torn": (type(None), [str]),
        },
    ),
    "nodes": [{"node": str}],
    "findings": [
        {
            "kind": TEXT,
            "severity": TEXT,
            "subject": (type(None), _SUBJECT),
            "since": TIME,
            "text": TEXT,
            "advice": TEXT,
            "share": NUMBER,
            "evidence": (type(None), dict),
        }
    ],
    "forecasts": [
        {
            "node": TEXT,
            "resource": TEXT,
            "now": NUMBER,
            "limit": NUMBER,
            "eta_s": NUMBER,
            "band": (type(None), [NUMBER]),
            "why_not": TEXT,
            "queues": (type(None), [_GROWING]),
        }
    ],
    "series": (
        type(None),
        {
            "nodes": (type(None), dict),
            "queues": (type(None), [{"ts": (type(None), list), "ready": (type(None), list)}]),
        },
    ),
}
"""The shape of a health document."""

PLAN: Final[Shape] = {
    "cluster": str,
    "inputs": (type(None), {"coverage": NUMBER, "window": (type(None), [TIME])}),
    "goals": [{"before": NUMBER, "after": NUMBER}],
    "summary": {"score_before": NUMBER, "score_after": NUMBER, "bytes": NUMBER, "eta_s": NUMBER},
    "nodes": [{"node": str, "cpu_before": NUMBER, "cpu_after": NUMBER}],
    "waves": [{"n": NUMBER, "steps": [str]}],
    "steps": [
        {
            "id": str,
            "action": str,
            "vhost": TEXT,
            "queue": TEXT,
            "from": TEXT,
            "to": TEXT,
            "depends": (type(None), [str]),
            "cost": (type(None), {"units": NUMBER, "bytes": NUMBER, "est_s": NUMBER}),
            "effect": (type(None), dict),
        }
    ],
}
"""The shape of a plan's parts that `spark_ops.planning.plan` does not check."""


def check(document: Any, shape: Shape, where: str = "it") -> None:
    """Check a document against a shape. Raises: ValueError, which names the wrong part. Missing keys are allowed."""
    if isinstance(shape, tuple):
        if not any(_is(document, each) for each in shape):
            raise ValueError(f"{where} is {_what(document)}")
        for each in shape:
            if isinstance(each, dict | list) and document is not None:
                check(document, each, where)
    elif not _is(document, shape):
        raise ValueError(f"{where} is {_what(document)}")
    elif isinstance(shape, list):
        for place, each in enumerate(document):
            check(each, shape[0], f"{where}[{place}]")
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            if key in document:
                check(document[key], inner, key if where == "it" else f"{where}.{key}")


def _is(value: Any, shape: Shape) -> bool:
    """True if a value has the outermost type of a shape."""
    if isinstance(shape, tuple):
        return any(_is(value, each) for each in shape)
    if isinstance(shape, list):
        return isinstance(value, list)
    if isinstance(shape, dict):
        return isinstance(value, dict)
    return isinstance(value, shape) and not (isinstance(value, bool) and shape in (int, float))


def _what(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return f"{names.get(type(value), 'a number')}, which it must not be"
