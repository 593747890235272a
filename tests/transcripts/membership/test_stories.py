"""Each story of membership goes as it is written; see story.py."""

from pathlib import Path

import pytest

from tests.transcripts.membership.story import STORIES, play


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert play(path.read_text()) == path.read_text(), (
        "if that is right: python -m tests.transcripts.membership.story --rewrite"
    )


def test_there_are_stories() -> None:
    assert len(STORIES) >= 3
