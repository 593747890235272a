"""This module detects a full or stuck disk of the metadata (DATA/raft), for the log and the monitoring of the node.

A node whose metadata disk is stuck continues to serve, as it follows a leader whose disk works; so no alarm
blocks publishers. But declarations through it are not answered, and its copy of the metadata is of no use.
"""

import logging
from typing import Final

from node.log import phrases

ALARM: Final = "metadata_disk"
"""The name of this state in `cluster_status` and the health checks, beside the resources of `node.client.alarms`."""

STUCK_S: Final = 10.0
"""A disk that has not answered for this long is reported."""


class MetadataDisk:
    """The state of one node's metadata disk. Call `look` several times a second."""

    def __init__(self, logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]") -> None:
        self._logger = logger
        self._is_full = False
        self._hangs = False

    @property
    def is_stuck(self) -> bool:
        """True if the operator has to act: the disk is full, or hangs."""
        return self._is_full or self._hangs

    def full(self, reason: str) -> None:
        """Record and log that a write found no room."""
        self._is_full, self._hangs = True, False
        self._logger.error(phrases.metadata_disk_full(reason))

    def has_room(self) -> None:
        """Record and log that all writes that had found no room are done."""
        self._is_full = False
        self._logger.warning(phrases.metadata_disk_resumed())

    def look(self, waits_s: float) -> None:
        """Record for how long the oldest write has waited, and log when the disk gets stuck or works again."""
        if self._is_full:
            return
        hangs = waits_s >= STUCK_S
        if hangs and not self._hangs:
            self._logger.error(phrases.metadata_disk_stuck(waits_s))
        elif self._hangs and not hangs:
            self._logger.warning(phrases.metadata_disk_resumed())
        self._hangs = hangs
