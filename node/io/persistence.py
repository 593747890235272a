"""A node's data directory holds its store and its metadata; this module reads them at the start and closes them at
the end.

    open ─► load metadata ─► recover messages ─► start the disk … stop: last batch, mark of a clean stop
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from node.broker.broker import Broker
from node.broker.unsettled import note_deliveries
from node.catalogue.catalogue import Catalogue
from node.catalogue.mirrors.views import stored_uid
from node.catalogue.records import QueueRecord
from node.catalogue.replicated_log import DurableLog
from node.config.config import Config
from node.io.data_directory import DataDirectoryError
from node.io.disk import FileDisk
from node.log import mirroring as log_mirroring
from node.log import phrases
from node.log.log import category_logger
from node.queue.mirroring import RecoveredCopy
from node.scheduling.timers import Timers
from node.store.copies import recoverable_copies, stored
from node.store.directory import StoreError, claim
from node.store.findings import Damage, Finding
from node.store.metadata_log import MetadataLog, MetadataUnreadable
from node.store.options import StoreOptions
from node.store.records import NewerFormat
from node.store.recovery import Progress, RecoveredStore, recover
from node.store.store import Store

FINDINGS_SHOWN_MAX: Final = 10
"""The most lines of the log about one damaged file; `fluffle store check` shows all."""


class Persistence:
    """The data of one node on disk. The broker is built around its `catalogue`, `timers` and `store`.

    catalogue: the metadata, if the cluster keeps them; None: they are kept here.
    on_unwritable: called with True when the disk has no room to write, and with False when it writes again.
    on_failed: called when the disk can no longer write: data may be lost, so the node has to end.

    Raises: DataDirectoryError, with a text for the operator, if the directory cannot be used.
    """

    def __init__(
        self,
        config: Config,
        on_unwritable: Callable[[bool], None],
        catalogue: Catalogue | None = None,
        *,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        options = config.store
        self._data_dir = config.data_dir
        self._shutdown_timeout_s = options.shutdown_timeout_s
        self._on_unwritable = on_unwritable
        self._on_failed = on_failed
        self._stalled_at = 0.0
        self._is_started = False
        self._logger = category_logger()
        self.timers = Timers()
        self.catalogue = Catalogue() if catalogue is None else catalogue
        self._disk = FileDisk.open(config.data_dir)
        try:
            identity = claim(self._disk, config.node_name, options.segment_entries)
        except (StoreError, NewerFormat, OSError) as error:
            self._disk.close()
            raise DataDirectoryError(
                f"the data directory {config.data_dir} cannot be used: {error}"
            ) from error
        # A cluster answers a declaration when most of its nodes have it on disk, so no message can come before that.
        self._metadata = MetadataLog(self._disk, self.catalogue) if catalogue is None else None
        self.store = Store(
            self._metadata.ahead_of(self._disk) if self._metadata is not None else self._disk,
            StoreOptions(
                embed_max_bytes=options.embed_max_bytes,
                segment_entries=identity.segment_entries,
                journal_file_bytes=options.journal_file_bytes,
                store_file_bytes=options.store_file_bytes,
                commit_interval_s=options.commit_interval_s,
                scrub_rate=options.scrub_rate,
            ),
            self.timers,
            report=self._report,
            counters=self._disk.counters,
        )
        self.store.on_broken = self._broken

    @property
    def disk_progress(self) -> tuple[int, bool]:
        """A number that grows with the disk's work, and whether the disk is busy."""
        return self._disk.progress, self._disk.is_busy

    @property
    def disk_thread_id(self) -> int | None:
        """The kernel's number of the disk's thread; None: it does not run."""
        return self._disk.thread_id

    def load(self, broker: Broker) -> bool:
        """Load the metadata and messages on disk into the broker; return whether there were metadata.

        Where the cluster keeps the metadata, the broker has them already.

        Raises: DataDirectoryError if the directory cannot be read. Nothing is changed then.
        """
        self.store.wake = lambda: broker.wake()  # looked up at each call, as it may be replaced
        self.store.on_relieved = broker.relieved
        try:
            is_known = self._load_metadata(broker)
            self._recover(broker)
            self.store.begin()
        except (NewerFormat, MetadataUnreadable) as error:
            raise DataDirectoryError(
                f"the data directory {self._data_dir} cannot be read: {error}"
            ) from error
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise DataDirectoryError(
                f"the data directory {self._data_dir} cannot be recovered: {error.strerror or error}{where}; "
                "nothing is lost, it may be tried again"
            ) from error
        return is_known

    def _load_metadata(self, broker: Broker) -> bool:
        if self._metadata is None:
            return True
        log = DurableLog(self.catalogue, broker.react, self._metadata)
        broker.log = log
        return self._metadata.load(log.replay, self._report)

    def _recover(self, broker: Broker) -> None:
        self._logger.info(phrases.store_starting(self._data_dir))
        live = {
            stored_uid(queue.record.uid, queue.record.copy): queue
            for queue in broker.local_queues
            if queue.is_durable
        }
        copies = recoverable_copies(broker.catalogue, broker.settings.node_name)
        assert not live.keys() & copies.keys(), "no node is master of a queue before it is up"
        wanted = {uid: stored(queue.record, queue.record.copy) for uid, queue in live.items()}
        wanted.update((uid, stored(record, copy)) for uid, (record, copy) in copies.items())
        started = time.monotonic()
        recovered = recover(
            self._disk,
            self.store,
            wanted,
            now=time.monotonic,
            progress=self._tell_progress,
            copies=copies,
            is_catalogue_whole=self._metadata is None or self._metadata.is_whole,
        )
        if not recovered.was_clean and recovered.queues:
            self._logger.warning(phrases.store_rebuilding(self._data_dir))
        self._tell_findings(recovered.findings)
        for uid, queue in live.items():
            found = recovered.queues[uid]
            queue.restore(found.next_seq, found.pages)
        self._hand_over_copies(broker, copies, recovered)
        took_ms = round((time.monotonic() - started) * 1000)
        self._logger.info(phrases.queues_recovered(len(live), took_ms))
        self._logger.info(phrases.messages_recovered(recovered.messages, recovered.body_bytes))

    def _hand_over_copies(
        self, broker: Broker, copies: Mapping[str, tuple[QueueRecord, int]], recovered: RecoveredStore
    ) -> None:
        """Pass the copies of mirrored queues to the mirrors; log discarded ones, and those that lost messages."""
        mirrors = broker.mirrors
        assert mirrors is not None or not copies, "mirrored queues are a cluster's"
        if mirrors is None:
            return
        mirrors.is_store_whole = recovered.is_whole
        if recovered.unknown_queues:
            self._logger.info(log_mirroring.copies_discarded(len(recovered.unknown_queues)))
        for uid, (record, copy) in copies.items():
            found = recovered.queues[uid]
            storage = broker.open_storage(record, copy)
            mirrors.recovered(
                record, RecoveredCopy(storage, copy, found.next_seq, found.pages, found.is_clean)
            )
        if copies:
            self._logger.info(log_mirroring.copies_recovered(len(copies)))
        lossy = sum(not recovered.queues[uid].is_clean for uid in copies)
        if lossy:
            self._logger.error(log_mirroring.copies_lossy(lossy))

    def _tell_findings(self, findings: Sequence[Finding]) -> None:
        """Log the findings, each in a line, but at most `FINDINGS_SHOWN_MAX` of one file."""
        shown = Counter[str]()
        for finding in findings:
            shown[finding.path] += 1
            if shown[finding.path] <= FINDINGS_SHOWN_MAX:
                # A torn end is what any crash may leave.
                level = logging.WARNING if finding.damage is Damage.TORN else logging.ERROR
                self._logger.log(level, "%s", finding)
        for path, count in shown.items():
            if count > FINDINGS_SHOWN_MAX:
                self._logger.error("%s: and %d more", path, count - FINDINGS_SHOWN_MAX)

    def start(self) -> None:
        """Start the disk's thread, on the running loop."""
        self._disk.start(asyncio.get_running_loop(), on_stalled=self._stalled, on_resumed=self._resumed)
        self._is_started = True

    async def stop(self, broker: Broker) -> bool:
        """Write what is left and the mark of a clean stop, and release the directory.

        Returns: whether all of it is on disk.
        """
        if self._is_started:
            self._logger.info(phrases.store_stopping(self._data_dir))
            note_deliveries(broker)
            if not await self._disk.drain(self._shutdown_timeout_s):
                self._logger.error(phrases.disk_hung(self._data_dir))
                self._disk.close(0.0)
                return False
            self.store.close()
        is_closed = self._disk.close(self._shutdown_timeout_s)
        if is_closed and self.store.is_closed:
            self._logger.info(phrases.store_stopped(self._data_dir))
        return is_closed and not self.store.is_broken

    # --- what happens to the disk ---

    def _tell_progress(self, progress: Progress) -> None:
        percent = progress.done_bytes * 100 // max(progress.total_bytes, 1)
        self._logger.info("Recovering messages: %d %% read, %d so far", percent, progress.messages)

    def _report(self, path: str, offset: int, what: str) -> None:
        self._logger.error("Damage in '%s/%s' at offset %d: %s", self._data_dir, path, offset, what)

    def _stalled(self, reason: str) -> None:
        self._stalled_at = time.monotonic()
        self._logger.error(phrases.disk_full(reason))
        self._on_unwritable(True)

    def _resumed(self) -> None:
        self._logger.warning(phrases.disk_resumed(time.monotonic() - self._stalled_at))
        self._on_unwritable(False)

    def _broken(self, error: OSError) -> None:
        self._logger.critical(phrases.store_broken(self._data_dir, error.strerror or str(error)))
        self._on_failed()
