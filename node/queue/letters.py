"""The dead letters of one queue that have left its backlog and that their targets don't have yet.

Only queues whose `dead-letter-strategy` is `at-least-once` count them: a letter counts for the queue's length limits
until it has gone. Above `LETTERS_MAX_BYTES` the queue gives out no messages, so no more of them can die.
Source: docs/dead_letters.md.
"""

from typing import Final

from node.queue.run import Run, content_bytes

LETTERS_MAX_BYTES: Final = 64 * 1024 * 1024
"""The memory that the dead letters of a queue may take, about, before it gives out no more messages."""

LETTER_BYTES: Final = 600
"""The bytes that a dead letter costs beside its content, about."""


class Letters:
    """The number and size of the dead letters of one queue.

    is_full: there are so many that the queue gives out no messages, until half of them have gone.
    """

    __slots__ = ("_content_bytes", "body_bytes", "count", "is_full")

    def __init__(self) -> None:
        self.count = self.body_bytes = self._content_bytes = 0
        self.is_full = False

    @property
    def memory_bytes(self) -> int:
        """The bytes that they take in memory, about: properties count, as they may be larger than bodies."""
        return self._content_bytes + self.count * LETTER_BYTES

    def add(self, run: Run) -> bool:
        """Count more letters. Returns: True if these are too many for the first time."""
        self.count += len(run)
        self.body_bytes += run.body_bytes
        self._content_bytes += content_bytes(run)
        if self.is_full or self.memory_bytes <= LETTERS_MAX_BYTES:
            return False
        self.is_full = True
        return True

    def remove(self, run: Run) -> bool:
        """Count letters no more that have gone. Returns: True if the queue may give out messages again."""
        self.count -= len(run)
        self.body_bytes -= run.body_bytes
        self._content_bytes -= content_bytes(run)
        assert self.count >= 0
        if not self.is_full or self.memory_bytes > LETTERS_MAX_BYTES // 2:
            return False
        self.is_full = False
        return True


NO_LETTERS: Final = Letters()
"""The letters of all queues that never had some that wait. Nothing is ever added to it."""
