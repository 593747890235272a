"""Whether the disk of the metadata, DATA/raft, takes what it is given: for the log, and for who watches the node.

A node whose metadata disk is stuck goes on serving, as it follows a leader that has a disk; so it is no alarm that
blocks publishers. But what is declared through it is not answered, and its copy of the metadata is not of use.
"""

import logging
from typing import Final

from node.log import phrases

ALARM: Final = "metadata_disk"
"""How `cluster_status` and the health checks call it, beside the resources of `node.client.alarms`."""

STUCK_S: Final = 10.0
"""A disk that has not answered for so long is reported."""


class MetadataDisk:
    """Of one node. `look` comes again and again, some times a second."""

    def __init__(self, logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]") -> None:
        self._logger = logger
        self._is_full = False
        self._hangs = False

    @property
    def is_stuck(self) -> bool:
        """Whether the operator has to look at it."""
        return self._is_full or self._hangs

    def full(self, reason: str) -> None:
        """A write found no room."""
        self._is_full, self._hangs = True, False
        self._logger.error(phrases.metadata_disk_full(reason))

    def has_room(self) -> None:
        """All that found no room is written."""
        self._is_full = False
        self._logger.warning(phrases.metadata_disk_resumed())

    def look(self, waits_s: float) -> None:
        """How long something has been waiting for it."""
        if self._is_full:
            return
        hangs = waits_s >= STUCK_S
        if hangs and not self._hangs:
            self._logger.error(phrases.metadata_disk_stuck(waits_s))
        elif self._hangs and not hangs:
            self._logger.warning(phrases.metadata_disk_resumed())
        self._hangs = hangs
