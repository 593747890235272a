"""Telemetry of one start of a broker: when objects are sampled, and where the rows go.

    at once         events
    each second     partitions, a jump of the clock, rows to the disk
    each interval   all queues in slices, then the node and its links; the other nodes' clocks
    after changes   the topology

It never holds the loop for more than two milliseconds, and nothing waits for it. A fault of telemetry is logged, and
the broker continues without it. Source: spark §2; docs/telemetry.md.
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from node.app import Node
from node.client.observer import Observer
from node.config.config import Config
from node.io.disk import FileDisk
from node.io.loop_lag import Longest, LoopLag
from node.io.turns import next_slice
from node.telemetry.clocks import Clocks
from node.telemetry.events import EventObserver
from node.telemetry.nodes import NodeRows
from node.telemetry.process import GcPauses, thread_cpu_ns
from node.telemetry.queues import QueueRows
from node.telemetry.rows import Moment, Rows
from node.telemetry.segments import Segments
from node.telemetry.surroundings import Surroundings
from node.telemetry.topology import TopologyRows

TICK_S: Final = 1.0
STEP_MS: Final = 1000
"""The smallest jump of the time of day between two samples that is reported as an event."""
BURST_A_S: Final = 100.0
"""The number of connections opened per second from which on an event is reported."""
BURST_PAUSE_S: Final = 60.0
CLOSE_S: Final = 10.0
"""The time in which the disk must finish when telemetry stops, in seconds."""


class Telemetry:
    """The telemetry of one broker.

    `observer` is given to its `Node`; then `start`, when the broker runs, and `stop`, when it runs no more.
    surroundings, lag: of the process.
    """

    def __init__(
        self,
        config: Config,
        surroundings: Surroundings,
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]",
        lag: LoopLag,
    ) -> None:
        self._config = config
        self._surroundings = surroundings
        self._logger = logger
        self.rows = Rows(
            config.cluster_name, config.node_name, uuid.uuid4().hex, wall=time.time, monotonic=time.monotonic
        )
        self._observer = EventObserver(config.node_name, self._tell, self._flush_soon)
        self._is_flush_coming = False
        self._clocks = Clocks()
        self._lag = lag
        self._longest: Longest | None = None
        self._pauses = GcPauses()
        self._disk: FileDisk | None = None
        self._segments: Segments | None = None
        self._queues: QueueRows
        self._nodes: NodeRows
        self._topology: TopologyRows
        self._node: Node
        self._tasks: list[asyncio.Task[None]] = []
        self._sampling = asyncio.Lock()
        self._sampled_ms: int | None = None
        self._offset_ms: int | None = None
        """The time of day less the monotonic clock, at the last look."""
        self._partitioned: tuple[str, ...] = ()
        self._opened = 0
        self._burst_until_ms = 0

    @property
    def observer(self) -> Observer:
        """The observer that the broker reports events to."""
        return self._observer

    # --- life cycle ---

    def start(self, node: Node) -> None:
        """Begin to watch the broker. A directory that cannot be used is logged, and there is no telemetry."""
        meter = node.broker.meter
        assert meter is not None, "telemetry is on"
        directory = os.path.join(self._config.telemetry.directory, self._config.node_name)
        try:
            self._open(directory)
        except OSError as error:
            self._logger.error("telemetry could not be started: %s", error)
            return
        self._logger.info("telemetry goes to %s", directory)
        self._node = node
        self._queues = QueueRows(node.broker, meter, self.rows, partial(_disk_cpu_ns, node))
        self._longest = self._lag.watch()
        self._nodes = NodeRows(node, self._surroundings, self._queues, self._lag, self._longest, self._pauses)
        self._topology = TopologyRows(node, self._surroundings, self.rows)
        self._opened = node.broker.counters.connection_created
        self._look_at_name()
        self._observer.begin(node.broker)
        self._tell({"event": "node_start", "to_node": self._config.node_name})
        self._pauses.start()
        loop = asyncio.get_running_loop()
        for run in (self._tick_each_second(), self._sample_each_interval(), self._ask_each_interval()):
            task = loop.create_task(run)
            task.add_done_callback(self._done)
            self._tasks.append(task)

    async def sample(self) -> None:
        """Sample all queues, the node and its links now. Does nothing before `start` and after `stop`."""
        if self._segments is None or not self._tasks:
            return
        async with self._sampling:
            await self._take(self._queues.tick(self.rows.now, time.monotonic()))
            self._look_at_name()
            moment = self.rows.now()
            gap_ms = None if self._sampled_ms is None else moment.mono_ms - self._sampled_ms
            self._sampled_ms = moment.mono_ms
            fields = self._nodes.fields(self._segments.dropped_total)
            self._write([self.rows.line("node", fields, moment, interval_ms=gap_ms)])
            self._write(self._link_rows(moment, gap_ms))
            self._look_for_burst(moment, gap_ms)

    async def stop(self, cause: str | None = None) -> None:
        """Stop watching: the broker runs no more. Writes the rows that are left.

        cause: why it runs no more; None: an operator stopped it.
        """
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        if self._longest is not None:
            self._lag.leave(self._longest)
        self._pauses.stop()
        segments, disk = self._segments, self._disk
        if segments is None or disk is None:
            return
        self._observer.release()
        self._tell({"event": "node_stop", "from_node": self._config.node_name, "cause": cause})
        segments.flush(time.monotonic())
        segments.close()
        self._segments = self._disk = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await disk.drain()
        if not disk.close(CLOSE_S):
            self._logger.error("the disk for telemetry did not finish within %g s", CLOSE_S)

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._logger.critical("telemetry has stopped: %r", fault, exc_info=fault)
            for each in self._tasks:
                each.cancel()

    # --- the disk ---

    def _open(self, directory: str) -> None:
        """Open the directory. Raises: OSError."""
        disk = FileDisk.open(directory)
        segments = Segments(
            disk,
            self.rows.boot_id,
            self._config.telemetry.max_bytes,
            exists=lambda name: os.path.exists(os.path.join(directory, name)),
            time_text=lambda: time.strftime("%Y%m%dT%H%M%S", time.gmtime()),
            on_broken=self._broken,
        )
        try:
            segments.take_over()
        except OSError:
            disk.close()
            raise
        disk.start(asyncio.get_running_loop(), on_stalled=self._stalled, on_resumed=self._resumed)
        self._disk, self._segments = disk, segments

    def _stalled(self, reason: str) -> None:
        self._logger.error("the disk takes no telemetry for now: %s", reason)

    def _resumed(self) -> None:
        lost = 0 if self._segments is None else self._segments.lost_rows
        self._logger.warning("the disk takes telemetry again; rows lost since the start: %d", lost)

    def _broken(self, error: OSError) -> None:
        self._logger.error("telemetry has stopped until the next start: %s", error)

    def _write(self, rows: Iterable[bytes]) -> None:
        if self._segments is not None:
            self._segments.write(rows, time.monotonic())

    async def _take(self, slices: Iterable[list[bytes]]) -> None:
        """Write rows slice by slice, and let other tasks run between them."""
        for rows in slices:
            self._write(rows)
            await next_slice()

    # --- periodic tasks ---

    async def _tick_each_second(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._look_at_clock(self.rows.now())
            self._look_for_partitions()
            now = time.monotonic()
            is_new = self._observer.is_topology_new
            if self._surroundings.is_first and self._topology.is_due(now, is_new=is_new):
                self._observer.is_topology_new = False
                await self._take(self._topology.take(self.rows.now(), now))
            if self._segments is not None:
                self._segments.tick(time.monotonic())

    async def _sample_each_interval(self) -> None:
        interval_s = self._config.telemetry.interval_s
        next_s = time.monotonic()
        while True:
            await self.sample()
            next_s = max(next_s + interval_s, time.monotonic() + interval_s / 2)
            await asyncio.sleep(next_s - time.monotonic())

    async def _ask_each_interval(self) -> None:
        """Ask the other nodes for their time."""
        while True:
            await asyncio.sleep(self._config.telemetry.interval_s)
            for name in self._clocks.choose(link.name for link in self._surroundings.links()):
                asked_s, began_s = time.time(), time.monotonic()
                theirs_s = await self._surroundings.ask_time(name)
                now = time.monotonic()
                if theirs_s is not None:
                    self._clocks.answered(name, asked_s, theirs_s, now - began_s, now)
            skew = self._clocks.skew_ms(time.monotonic())
            self.rows.skew_ms, self.rows.skew_err_ms = (None, None) if skew is None else skew

    # --- rows ---

    def _tell(self, fields: dict[str, Any]) -> None:
        """Write an event."""
        moment = self.rows.now()
        self._write([self.rows.line("event", {"event_id": str(uuid.uuid4()), **fields}, moment)])
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Have events on disk at the end of the turn."""
        if not self._is_flush_coming and self._segments is not None:
            self._is_flush_coming = True
            asyncio.get_running_loop().call_soon(self._flush_events)

    def _flush_events(self) -> None:
        self._is_flush_coming = False
        self._observer.release()
        if self._segments is not None:
            self._segments.flush(time.monotonic())

    def _link_rows(self, moment: Moment, gap_ms: int | None) -> list[bytes]:
        return [
            self.rows.line(
                "link",
                {
                    "from_node": self._config.node_name,
                    "to_node": link.name,
                    "rtt_us": self._clocks.rtt_us(link.name),
                    "batches_total": link.batches,
                    "batch_bytes_total": link.batch_bytes,
                    "batch_msgs_total": link.batch_packets,
                    "send_q_bytes": link.pending_bytes,
                    "backpressure_ms_total": link.congested_ms,
                    "reconnects_total": max(link.connects - 1, 0),
                    "last_error": link.last_error,
                },
                moment,
                interval_ms=gap_ms,
            )
            for link in self._surroundings.links()
        ]

    def _look_at_name(self) -> None:
        name = self._node.broker.catalogue.global_parameter("cluster_name")
        if isinstance(name, str) and name != self.rows.cluster:
            self.rows.cluster = name

    def _look_at_clock(self, moment: Moment) -> None:
        """Report a time of day that has jumped."""
        offset_ms, before_ms = moment.ts - moment.mono_ms, self._offset_ms
        self._offset_ms = offset_ms
        if before_ms is not None and abs(offset_ms - before_ms) >= STEP_MS:
            detail = {"step_ms": str(offset_ms - before_ms)}
            self._tell({"event": "clock_step", "detail": detail})

    def _look_for_partitions(self) -> None:
        """Report nodes that are up and cannot be reached from here."""
        now = tuple(sorted(self._surroundings.partitioned))
        before, self._partitioned = self._partitioned, now
        for name in now:
            if name not in before:
                self._tell({"event": "partition_suspected", "to_node": name})
        for name in before:
            if name not in now:
                self._tell({"event": "partition_healed", "to_node": name})

    def _look_for_burst(self, moment: Moment, gap_ms: int | None) -> None:
        """Report bursts of new connections, once a minute at most."""
        opened = self._node.broker.counters.connection_created
        count, self._opened = opened - self._opened, opened
        if gap_ms and count * 1000 >= BURST_A_S * gap_ms and moment.mono_ms >= self._burst_until_ms:
            self._burst_until_ms = moment.mono_ms + round(BURST_PAUSE_S * 1000)
            self._tell(
                {"event": "conn_churn_burst", "detail": {"opened": str(count), "within_ms": str(gap_ms)}}
            )


def _disk_cpu_ns(node: Node) -> int | None:
    """Return the CPU time of the thread of the node's message disk; None: it is unknown."""
    thread_id = node.disk_thread_id
    return None if thread_id is None else thread_cpu_ns(thread_id)
