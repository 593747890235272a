"""Each story of mirrored queues goes as it is written; see story.py.

The subtle cases of reliability §4.7 that are decided above the ring, or there as well: the others have their stories
in tests/transcripts/ring, and S19 and S20 another one in tests/transcripts/membership. And what clients see: a
failover, a transfer, a node that comes back, total restarts.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.transcripts.mirrors.story import STORIES, play
from tests.transcripts.ring.test_stories import ELSEWHERE

ABOVE_THE_RING: Final = {4, 11, 12, 13, 15, 18, 19, 20}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert play(path.read_text()) == path.read_text(), (
        "if that is right: python -m tests.transcripts.mirrors.story --rewrite"
    )


def test_each_case_has_its_story() -> None:
    told = {int(path.stem[1:3]) for path in STORIES if path.stem[1:3].isdigit()}
    assert told == ABOVE_THE_RING
    assert told >= ELSEWHERE
