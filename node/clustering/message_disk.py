"""Whether the disk of the messages takes what it is given: for the cluster, the log, and who watches the node.

A node whose message disk is stuck is alive, and whoever waits for its copies waits with it. So it says so to the other
nodes, which give it no new mirrors or masters until it goes on; it hands its own masters over, and is not ready.
"""

import logging
from typing import Final

from node.log import phrases

ALARM: Final = "message_disk"
"""How `cluster_status` and the health checks call it. Unlike the resources of `node.client.alarms` it blocks nobody."""

STUCK_S: Final = 10.0
"""A disk that has had something to do for so long and got on with nothing is stuck; mirrors are dropped then, too."""

LOOK_S_MAX: Final = 1.0
"""What counts at most of the time between two looks: a process that was frozen has looked at nothing."""


class MessageDisk:
    """Of one node. `look` comes again and again, some times a second."""

    def __init__(self, logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]") -> None:
        self._logger = logger
        self._progress = -1
        self._looked_s: float | None = None
        self._waits_s = 0.0
        self.is_stuck = False
        """Whether the node is to have no new copies."""

    def look(self, progress: int, now: float, *, is_busy: bool) -> bool:
        """See how far the disk is.   progress: grows with what it has done.   is_busy: whether it has work.

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
