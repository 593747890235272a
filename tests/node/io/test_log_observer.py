"""Lines of the log about what happens in the broker."""

import logging

import pytest

from node.broker.observer import Level, MirrorEvent
from node.io.log_observer import LogObserver


@pytest.mark.parametrize(
    ("level", "number"), [("info", logging.INFO), ("warning", logging.WARNING), ("error", logging.ERROR)]
)
def test_what_happens_to_a_mirrored_queue(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, level: Level, number: int
) -> None:
    """On one line, whatever the queue is called."""
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        text = "Mirrored queue 'a\nb' in vhost '/': Promoting mirror <n@h.1.2> to leader"
        LogObserver().mirror_event(MirrorEvent(level, "promotion", "/", "a\nb", text))
    [record] = caplog.records
    assert record.levelno == number
    assert record.getMessage() == (
        "Mirrored queue 'a\\nb' in vhost '/': Promoting mirror <n@h.1.2> to leader"
    )
    assert record.name.endswith(".mirroring")
