"""Small numbers where the real ones would take megabytes."""

import pytest

from node.queue import paged_backlog


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers are read ahead for by a few messages, and few entries are beta."""
    monkeypatch.setattr(paged_backlog, "AHEAD_BYTES", 1000)
    monkeypatch.setattr(paged_backlog, "KEPT_BYTES", 100)
    monkeypatch.setattr(paged_backlog, "ABSENT_MAX", 4)
