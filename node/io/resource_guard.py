"""The guard watches memory and disk, raises the alarms that block publishers, and has the broker page messages out."""

import asyncio
from typing import Final

from node.broker.broker import Broker
from node.config.config import Config
from node.io.resources import DiskMonitor, MemoryMonitor, free_disk_bytes, rss_bytes
from node.log import phrases
from node.log.log import category_logger

SAMPLE_S: Final = 0.25
"""The interval at which the pager gets the memory in use: in that time a fast publisher brings some 50 MB."""


class ResourceGuard:
    """The resource monitors of one node. `start` them on the loop; `stop`."""

    def __init__(self, config: Config, total_bytes: int) -> None:
        self.memory = MemoryMonitor(config.memory, self._memory_changed, total_bytes=total_bytes)
        self.disk = DiskMonitor(
            config.disk,
            self._disk_changed,
            total_bytes=total_bytes,
            free=lambda: free_disk_bytes(config.data_dir),
        )
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_unwritable = False
        self._logger = category_logger()

    def start(self, broker: Broker) -> None:
        """Check memory and disk now, and regularly from now on."""
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._logger.info(phrases.memory_limit(self.memory.limit_bytes, self.memory.total_bytes))
        self._logger.info(phrases.disk_limit(self.disk.limit_bytes))
        self.memory.start(self._loop)
        self.disk.start(self._loop)
        self._set_disk_alarm()  # it may have been unwritable before
        self._sample()

    def stop(self) -> None:
        """Check no more."""
        self.memory.stop()
        self.disk.stop()
        if self._timer is not None:
            self._timer.cancel()

    def disk_unwritable(self, is_unwritable: bool) -> None:
        """Set or clear the disk alarm when the disk has no room to write, whatever the free space is."""
        self._is_unwritable = is_unwritable
        self._set_disk_alarm()

    def _sample(self) -> None:
        assert self._loop is not None
        assert self._broker is not None
        self._broker.sample_memory(rss_bytes())
        self._timer = self._loop.call_later(SAMPLE_S, self._sample)

    def _memory_changed(self, is_alarmed: bool, used_bytes: int, limit_bytes: int) -> None:
        assert self._broker is not None
        if is_alarmed:
            self._logger.info(phrases.memory_high(used_bytes, limit_bytes))
            self._broker.alarms.set("memory")
        else:
            self._logger.info(phrases.memory_normal(used_bytes, limit_bytes))
            self._broker.alarms.clear("memory")

    def _disk_changed(self, is_alarmed: bool, free_bytes: int, limit_bytes: int) -> None:
        phrase = phrases.disk_low if is_alarmed else phrases.disk_enough
        self._logger.info(phrase(free_bytes, limit_bytes))
        self._set_disk_alarm()

    def _set_disk_alarm(self) -> None:
        if self._broker is None:
            return
        if self.disk.is_alarmed or self._is_unwritable:
            self._broker.alarms.set("disk")
        else:
            self._broker.alarms.clear("disk")
