"""Waiting for an answer of an auth backend: a connection reads nothing meanwhile, so everything is done in order."""

from collections.abc import Callable
from functools import partial
from typing import Any

from node.amqp.reader import FrameReader
from node.queue.live_queue import Wait


class Asking:
    """The question of one connection that has no answer yet.   is_on: True while there is one."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self.is_on = False

    def begin(self, question: Wait, answered: Callable[[Any], None]) -> None:
        """Ask, and pause the reader until the answer has come.   answered: called with the answer, once."""
        assert not self.is_on, "one question at a time"
        self.is_on = True
        question(partial(self._end, answered))
        self._reader.paused = self._reader.paused or self.is_on

    def _end(self, answered: Callable[[Any], None], answer: Any) -> None:
        self.is_on = False
        answered(answer)
