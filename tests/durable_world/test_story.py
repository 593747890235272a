"""No story that clients, disk and power make up breaks what amqp-behaviour §7.5 and §7.6 promise: many random ones.

FLUFFLE_WORLD=2000 pytest -s tests/durable_world/test_story.py          so many stories
FLUFFLE_WORLD=seed:123 pytest -s tests/durable_world/test_story.py      story 123 only
"""

import os
from traceback import format_exc

import pytest

from tests.durable_world.story import Story

STORIES = 30
"""About ten seconds."""

TURNS = 150
FAILURES_SHOWN_MAX = 5


@pytest.mark.slow
def test_stories() -> None:
    """After each start every message that is sure is there, once, in order, and nothing else; figures are right."""
    starts = messages = looked_for = 0
    failures: list[str] = []
    for seed in _seeds():
        story = Story(seed)
        try:
            story.tell(TURNS)
        except Exception:  # noqa: BLE001 - each story stands for itself
            failures.append(f"FLUFFLE_WORLD=seed:{seed} pytest -s {__file__}\n{format_exc()}")
            if len(failures) == FAILURES_SHOWN_MAX:
                break
        starts += story.starts
        messages += len(story.messages)
        looked_for += story.looked_for
    print(f"\n{starts:,} starts, {messages:,} messages; sure ones looked for: {looked_for:,}")
    assert not failures, "\n".join(failures)


def _seeds() -> range:
    wanted = os.environ.get("FLUFFLE_WORLD", str(STORIES))
    if wanted.startswith("seed:"):
        seed = int(wanted.removeprefix("seed:"))
        return range(seed, seed + 1)
    return range(int(wanted))
