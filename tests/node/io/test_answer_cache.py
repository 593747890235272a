"""Answers that are remembered: for how long, and how many."""

from node.io.answer_cache import AnswerCache


def test_an_answer_is_remembered_for_its_time() -> None:
    cache: AnswerCache[bool] = AnswerCache(15.0)
    assert cache.find("q", 100.0) is None
    cache.keep("q", False, 100.0)
    assert cache.find("q", 114.9) is False
    assert cache.find("q", 115.0) is None
    assert len(cache) == 0


def test_the_answer_that_was_used_longest_ago_makes_room() -> None:
    cache: AnswerCache[bool] = AnswerCache(15.0, most=2)
    cache.keep("a", True, 0.0)
    cache.keep("b", True, 0.0)
    assert cache.find("a", 1.0)
    cache.keep("c", True, 1.0)
    assert [cache.find(name, 1.0) for name in "abc"] == [True, None, True]
    cache.clear()
    assert len(cache) == 0
