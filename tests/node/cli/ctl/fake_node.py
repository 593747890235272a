"""A node that answers `fluffle ctl` what it was told to."""

from collections.abc import Callable, Mapping
from pathlib import Path
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


def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose registry lists a node that was killed.

    With an empty registry the command line would ask nodes that run on this machine outside of the tests.
    """
    registry = tmp_path / "fluffle"
    registry.mkdir(mode=0o700, exist_ok=True)
    (registry / "killed@h~0").write_text(f"{tmp_path}/killed\n")
    return {"XDG_RUNTIME_DIR": str(tmp_path)}
