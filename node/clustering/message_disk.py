"""This module detects a stuck message disk, for the cluster, the log, and the monitoring of the node.

A node whose message disk is stuck is alive, and publishers that wait for its copies wait with it. So it tells the other
nodes, which give it no new mirrors or masters until the disk works again; it hands over its masters, and is not ready.
"""

import logging
from typing import Final

from node.log import phrases

ALARM: Final = "message_disk"
"""The name of this state in `cluster_status` and the health checks. Unlike the resources of `node.client.alarms` it
blocks no publisher.
"""

STUCK_S: Final = 10.0
"""A disk that has had work for this long and has finished none of it is stuck; then mirrors are dropped, too."""

LOOK_S_MAX: Final = 1.0
"""The most that the time between two looks counts: while a process is frozen, its disk is not watched."""


class MessageDisk:
    """The state of one node's message disk. Call `look` several times a second."""

    def __init__(self, logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]") -> None:
        self._logger = logger
        self._progress = -1
        self._looked_s: float | None = None
        self._waits_s = 0.0
        self.is_stuck = False
        """True if the node is to get no new copies of queues."""

    def look(self, progress: int, now: float, *, is_busy: bool) -> bool:
        """Record how far the disk has got.

        progress: grows with the work that it has done.   is_busy: whether it has work.
        Returns: whether `is_stuck` has changed.
        """
        since_s = 0.0 if self._looked_s is None else min(now - self._looked_s, LOOK_S_MAX)
        self._looked_s = now
        if not is_busy or progress != self._progress:
            self._progress, self._waits_s = progress, 0.0
        else:
            self._waits_s += since_s
        is_stuck = self._waits_s >= STUCK_S
        if is_stuck == self.is_stuck:
            return False
        self.is_stuck = is_stuck
        if is_stuck:
            self._logger.error(phrases.message_disk_stuck(self._waits_s))
        else:
            self._logger.warning(phrases.message_disk_resumed())
        return True
