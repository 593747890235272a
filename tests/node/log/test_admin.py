"""Lines about what operators change: nothing that a client or an operator chose breaks a line or forges one."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from node.log import admin as log_admin

UNSAFE = "x\r\n2026-11-22 00:00:00.000000+00:00 [info] <0.1.0> forged\x1b[31m\u202e\u2028"
FUNCTIONS = [
    function
    for name, function in vars(log_admin).items()
    if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == log_admin.__name__
]
ESCAPED_BEFORE = {
    ("failed", "action"),
    ("failed", "reason"),
    ("importing_items", "noun"),
    ("import_skipped", "noun"),
}
"""Arguments that only our code chooses."""


def _unsafe(function: Callable[..., str], parameter: inspect.Parameter) -> Any:
    kind = str(parameter.annotation)
    if (function.__name__, parameter.name) in ESCAPED_BEFORE:
        return "x"
    if "Sequence" in kind:
        return [UNSAFE]
    if "Mapping" in kind:
        return {UNSAFE: UNSAFE}
    return {"<class 'int'>": 1, "<class 'bool'>": True}.get(kind, UNSAFE)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_no_line_is_forged(function: Callable[..., str]) -> None:
    parameters = inspect.signature(function).parameters
    line = function(**{name: _unsafe(function, parameter) for name, parameter in parameters.items()})
    assert line.isprintable()


def test_there_are_some() -> None:
    assert len(FUNCTIONS) > 20
