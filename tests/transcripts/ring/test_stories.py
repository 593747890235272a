"""Each story of a ring goes as it is written; see story.py.

The subtle cases of reliability §4.7 have a story each as far as the ring decides them. The others are decided, and
tested, elsewhere: S4 (numbers in a snapshot) by the mirrors, in the simulator; S11 (a link breaks and nobody dies) by
the transport, which repeats and never tells (tests/cluster/transport); S15 (delete and purge in a flush) by catalogue
and queue; S19 (a lonely leader) by membership (tests/transcripts/membership). S12 and S13 end in the views
(tests/node/catalogue/mirrors/test_views.py), S18 begins on disks, S20 with leases: what the ring
has to do with them is here.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.transcripts.ring.story import STORIES, play

ELSEWHERE: Final = {4, 11, 15, 19}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert play(path.read_text()) == path.read_text(), (
        "if that is right: python -m tests.transcripts.ring.story --rewrite"
    )


def test_each_case_has_its_story() -> None:
    told = {int(path.stem[1:3]) for path in STORIES if path.stem.startswith("s")}
    assert told == set(range(1, 21)) - ELSEWHERE
