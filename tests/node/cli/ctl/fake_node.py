"""A node that answers `fluffle ctl` what it was told to."""

from collections.abc import Callable, Mapping
from typing import Any

NODE = "n1@h"

Run = Callable[..., tuple[int, str, str]]
"""Runs a command line; exit code, output, errors."""


class FakeNode:
    """Answers what it was told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.timeouts: list[float] = []

    def __call__(
        self, data_dir: str, operation: str, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> Any:
        self.asked.append((operation, arguments))
        self.timeouts.append(timeout_s)
        answer = self.answers.get(operation, {})
        if isinstance(answer, Exception):
            raise answer
        return answer
