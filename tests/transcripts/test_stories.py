"""Each story goes as it is written; see story.py."""

from pathlib import Path

import pytest

from tests.transcripts.story import STORIES, play


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert play(path.read_text()) == path.read_text(), (
        "if that is right: python -m tests.transcripts.story --rewrite"
    )


def test_there_are_stories() -> None:
    assert len(STORIES) >= 6


def test_a_story_that_goes_otherwise_is_noticed() -> None:
    told = play("client 1 logs in\nclient 1 queue.declare queue=q\n")
    assert told == "client 1 logs in\nclient 1 queue.declare queue=q\n    client 1 queue.declare-ok queue=q\n"
    assert play(told.replace("-ok queue=q", "-ok queue=other")) == told


@pytest.mark.parametrize(
    "line",
    [
        'client 1 basic.publish routing_key=q body="a b \\" é" headers={a=[1,true,{b="x y"}],c=-2} priority=5',
        "client 1 basic.publish routing_key=q mandatory expiration=1000",
    ],
)
def test_what_is_written_is_what_is_shown(line: str) -> None:
    story = (
        "client 1 logs in\nclient 1 queue.declare queue=q\n" + line + "\nclient 1 basic.get queue=q no_ack\n"
    )
    answer = play(story).splitlines()[-1]
    for word in line.removeprefix("client 1 basic.publish ").replace(" mandatory", "").split(" "):
        assert word in answer
