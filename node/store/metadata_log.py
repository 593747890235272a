"""The catalogue on disk: one file with the commands that changed its durable part.

    metadata.log = header record*        see `node.store.records`
    payload      = command ("\\n" command)*   one change, as JSON: see `node.catalogue.command_codec`

Changes that come while a job is on its way to the disk gather and share the next one. When the file has grown
enough it is *compacted*: a snapshot goes to metadata.log.tmp piece by piece, a piece a job, while changes are
still written to the old file; with the last piece goes what changed since the snapshot was taken, and the new file
takes the old one's name.

    append ─► gathered ─► [Append, Sync] ─► safe
    grown  ─► snapshot ─► [Append tmp] … [Append tmp, Sync, Rename, SyncDir]
Source: amqp-behaviour §7.6; docs/storage.md, "metadata.log".
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from node.catalogue.catalogue import Catalogue
from node.catalogue.command_codec import CommandUnreadable, decode_command, encode_command
from node.catalogue.commands import Command, PutVhost, Refused
from node.catalogue.snapshot import snapshot
from node.store.disk import (
    READING,
    TO_THE_END,
    Append,
    Disk,
    MakeDir,
    Read,
    Remove,
    Rename,
    Step,
    Sync,
    SyncDir,
)
from node.store.records import (
    HEADER_BYTES,
    METADATA_HEADER,
    EndState,
    NewerFormat,
    check_header,
    read_records,
    record,
)

PATH: Final = "metadata.log"
_NEW_PATH: Final = "metadata.log.tmp"
_CORRUPT: Final = "corrupt"

COMPACT_MIN_BYTES: Final = 1024 * 1024
"""The size below which a file is never compacted: it is read in a fraction of a second."""

_GROWTH: Final = 2
"""The growth since the last snapshot at which a file is compacted: this costs each byte another write, on average."""

_SLICE_COMMANDS: Final = 250
"""The commands of a snapshot that one turn of the loop encodes: some 2 ms."""

_REFUSALS_SHOWN: Final = 100
"""The limit of commands of a damaged file that are reported one by one: a lost exchange may have had many bindings."""

_SEPARATOR: Final = b"\n"

Report = Callable[[str, int, str], None]
"""Takes what is damaged: path, offset in bytes, description."""

OnSafe = Callable[[bool], None]

Submit = Callable[[Command[Any], Callable[[Any], None]], None]
"""Has a command applied and reacted to, then calls the second argument with its result: `DurableLog.replay`."""


class MetadataUnreadable(Exception):
    """The file has something that this version does not know, or may not skip; the text is for the operator."""


class MetadataLog:
    """The file as it is written: a `node.catalogue.replicated_log.CommandLog`. `load` comes first, once.

    catalogue: the one of which snapshots are taken. When `append` is called it has the changes that this appends.
    """

    def __init__(
        self, disk: Disk, catalogue: Catalogue, *, compact_min_bytes: int = COMPACT_MIN_BYTES
    ) -> None:
        self._disk = disk
        self._catalogue = catalogue
        self._compact_min_bytes = compact_min_bytes
        self._size_bytes = HEADER_BYTES
        """The size of the file when all that was appended is written."""
        self._snapshot_bytes = 0
        """The size of the file after its last compaction; an estimate at first."""
        self._gathered: list[bytes] = []
        self._waiting: list[OnSafe] = []
        """The callbacks that wait for the gathered commands."""
        self._jobs = 0
        """The number of jobs on their way with callbacks that wait."""
        self._compaction: _Compaction | None = None
        self._is_broken = False
        self.is_whole = True
        """True if `load` found nothing amiss.

        Else directories that seem to belong to no queue may be worth keeping: a queue has messages on disk only after
        its declaration, so a torn end that cost one was no mere crash.
        """

    # --- writing ---

    def append(self, commands: Sequence[Command[Any]], on_safe: OnSafe) -> None:
        """Gather the commands as one record; it is written at once, or after the job that is under way."""
        written = _record(commands)
        self._gathered.append(written)
        self._waiting.append(on_safe)
        self._size_bytes += len(written)
        if self._compaction is not None:
            self._compaction.missed.append(written)
        elif self._is_grown and not self._is_broken:
            self._compaction = _Compaction(self._catalogue)
            self._continue_compaction()
        if not self._jobs:
            self.flush()

    def flush(self) -> None:
        """Submit what has gathered, behind all that was submitted before."""
        if self._gathered:
            parts, self._gathered = self._gathered, []
            self._submit([Append(PATH, parts), Sync(PATH)])

    def ahead_of(self, disk: Disk) -> Disk:
        """Return the disk for other writers: what has gathered here is written before what they write.

        So nothing that is on disk belongs to a queue that is not.
        """
        return _Behind(self, disk)

    def _submit(self, steps: list[Step]) -> None:
        """Submit a job that makes everything safe that has been appended so far."""
        waiting, self._waiting = self._waiting, []
        self._jobs += 1
        self._disk.submit(
            steps,
            lambda _: self._settle(waiting, is_safe=True),
            lambda _: self._settle(waiting, is_safe=False),
        )

    def _settle(self, waiting: list[OnSafe], *, is_safe: bool) -> None:
        self._is_broken = self._is_broken or not is_safe
        for on_safe in waiting:
            on_safe(is_safe)
        # Only now, so that commands that the callbacks append share one job.
        self._jobs -= 1
        if not self._jobs:
            self.flush()

    # --- compacting ---

    @property
    def _is_grown(self) -> bool:
        return self._size_bytes >= max(self._compact_min_bytes, _GROWTH * self._snapshot_bytes)

    def _continue_compaction(self, _: object = None) -> None:
        """Write the next piece of the snapshot, or the last one and all that came meanwhile."""
        compaction = self._compaction
        assert compaction is not None
        parts = compaction.take_slice()
        if not compaction.is_at_end:
            self._disk.submit([Append(_NEW_PATH, parts)], self._continue_compaction, self._give_up_compaction)
            return
        # From here on all goes to the new file. What has gathered for the old one is in this job too.
        self._compaction = None
        self._gathered = []
        self._size_bytes = compaction.written_bytes + sum(map(len, compaction.missed))
        self._snapshot_bytes = compaction.written_bytes
        self._submit(_replace_steps(parts + compaction.missed))

    def _give_up_compaction(self, _: OSError) -> None:
        """Give up compacting: the disk is broken, and with it the file that is being written."""
        self._is_broken = True
        self._compaction = None

    # --- at the start ---

    def load(self, submit: Submit, report: Report) -> bool:
        """Give `submit` the commands that build the file's catalogue; return True if there were any.

        Damage is told to `report`, and a copy of the file as it was is kept in corrupt/.
        Raises NewerFormat; MetadataUnreadable when a good record holds what this version does not know, or when
        all is lost; OSError.
        """
        names = self._disk.names("")
        self._disk.run([Remove(_NEW_PATH)])
        if PATH not in names:
            self._disk.run([Append(PATH, [METADATA_HEADER]), Sync(PATH), SyncDir("")])
            return False
        # The file is synced, as writes before a kill -9 may not be, and from now on they count as safe.
        data = bytes(self._disk.run([Sync(PATH), SyncDir(""), Read(PATH, 0, TO_THE_END)])[0])
        file = _File(data, report)
        if file.is_damaged and not file.command_count:
            # With an empty catalogue every message on disk would be removed, as belonging to no queue.
            raise MetadataUnreadable(f"{PATH}: nothing of it can be read: restore it from a backup")
        if file.is_damaged:
            self._set_aside(data)
        # A snapshot is used, so that objects deleted long ago do not come back for a moment.
        live_count = 0
        for command in snapshot(file.catalogue):
            submit(command, _assert_built)
            live_count += 1
        self._size_bytes = len(data)
        self._snapshot_bytes = len(data) * live_count // max(live_count, file.command_count, 1)
        if file.is_damaged or file.is_torn:
            # Nothing may be appended behind what is no record.
            self._rewrite(file.catalogue)
        self.is_whole = not (file.is_damaged or file.is_torn)
        return live_count > 0

    def _set_aside(self, data: bytes) -> None:
        """Keep a copy of the file as it was, under a name that is not taken."""
        taken = set(self._disk.names(_CORRUPT))
        name, number = PATH, 1
        while name in taken:
            number += 1
            name = f"{PATH}.{number}"
        path = f"{_CORRUPT}/{name}"
        self._disk.run([MakeDir(_CORRUPT), Append(path, [data]), Sync(path), SyncDir(_CORRUPT), SyncDir("")])

    def _rewrite(self, catalogue: Catalogue) -> None:
        """Compact the file at once."""
        parts = _Compaction(catalogue).take_all()
        self._size_bytes = self._snapshot_bytes = sum(map(len, parts))
        self._disk.run(_replace_steps(parts))


class _Compaction:
    """A compaction under way: the new file on its way to the disk.

    missed: records that came since the snapshot was taken.   written_bytes: of the snapshot, submitted so far.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.missed: list[bytes] = []
        self.written_bytes = 0
        self.is_at_end = False
        self._commands = snapshot(catalogue)

    def take_slice(self) -> list[bytes]:
        """Return the next piece of the new file."""
        parts = [] if self.written_bytes else [METADATA_HEADER]
        commands = list(islice(self._commands, _SLICE_COMMANDS))
        self.is_at_end = len(commands) < _SLICE_COMMANDS
        parts += [_record([command]) for command in commands]
        self.written_bytes += sum(map(len, parts))
        return parts

    def take_all(self) -> list[bytes]:
        """Return the whole file."""
        parts: list[bytes] = []
        while not self.is_at_end:
            parts += self.take_slice()
        return parts


class _Behind:
    """A `Disk` that writes what has gathered in a metadata log before each job that writes."""

    def __init__(self, log: MetadataLog, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self.run = disk.run
        self.names = disk.names
        self.size = disk.size

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that wait on the disk itself."""
        return self._disk.pending_bytes

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Write what has gathered in the log, if the job writes, and submit the job."""
        if not all(isinstance(step, READING) for step in steps):
            self._log.flush()
        self._disk.submit(steps, done, failed)


class _File:
    """The file, read into a catalogue.

    catalogue: built from the file.   command_count: how many commands the file has.
    is_torn: its end is no record, as a crash leaves it.   is_damaged: something is lost, and was reported.
    """

    def __init__(self, data: bytes, report: Report) -> None:
        self.catalogue = Catalogue()
        self.command_count = 0
        self.is_torn = False
        self.is_damaged = False
        self._report = report
        self._refused_count = 0
        self._check_header(data)
        records = read_records(data)
        for offset, payload in records:
            self._replay(offset, payload)
        end = records.end
        assert end is not None
        self.is_torn = self.is_torn or end.state is not EndState.CLEAN
        for offset, length in end.bad:
            self._damaged(offset, f"{length} bytes are no record")
        if self._refused_count > _REFUSALS_SHOWN:
            self._damaged(0, f"{self._refused_count} commands are refused in all")

    def _check_header(self, data: bytes) -> None:
        try:
            if check_header(data, METADATA_HEADER):
                return
        except NewerFormat as newer:
            raise NewerFormat(f"{PATH}: {newer}") from None
        self.is_torn = True
        if len(data) > HEADER_BYTES:
            self._damaged(0, "the header is damaged")

    def _replay(self, offset: int, payload: bytes) -> None:
        for text in payload.split(_SEPARATOR):
            try:
                command = decode_command(text)
            except CommandUnreadable as unreadable:
                raise MetadataUnreadable(
                    f"{PATH}: record at byte {offset}: {unreadable}; was it written by a later version?"
                ) from None
            self._apply(offset, command)
            self.command_count += 1

    def _apply(self, offset: int, command: Command[Any]) -> None:
        """Apply a command. It had an effect once, and has it again unless something that it builds upon is lost."""
        result = self.catalogue.apply(command)
        vhost = getattr(command, "vhost", None)
        if isinstance(result, Refused) and vhost is not None and self.catalogue.vhost(vhost) is None:
            # One lost record must not cost all that is in a vhost.
            self._damaged(offset, f"vhost '{vhost}' was missing and has been created again")
            self.catalogue.apply(PutVhost(vhost))
            result = self.catalogue.apply(command)
        self.catalogue.take_events()
        if isinstance(result, Refused):
            self._refused_count += 1
            if self._refused_count <= _REFUSALS_SHOWN:
                self._damaged(offset, f"{type(command).__name__} is refused: {result.text}")

    def _damaged(self, offset: int, what: str) -> None:
        self.is_damaged = True
        self._report(PATH, offset, what)


def _record(commands: Iterable[Command[Any]]) -> bytes:
    """Return the record of one change."""
    return b"".join(record([_SEPARATOR.join(map(encode_command, commands))]))


def _replace_steps(parts: list[bytes]) -> list[Step]:
    """Return steps that write the end of the new file and put it in the place of the old one."""
    return [Append(_NEW_PATH, parts), Sync(_NEW_PATH), Rename(_NEW_PATH, PATH), SyncDir("")]


def _assert_built(result: object) -> None:
    assert not isinstance(result, Refused), "a snapshot gives commands in an order in which none is refused"
