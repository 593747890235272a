"""The messages of a backlog that lets go of them, by where their contents are."""

from typing import NamedTuple

from node.queue.run import Absent, Run
from node.queue.storage import Page


class Holdings(NamedTuple):
    """Messages of a backlog.   runs, absents, pages: in memory, without contents there, and known by number only."""

    runs: list[Run]
    absents: list[Absent]
    pages: list[Page]
