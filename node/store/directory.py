"""The identity of a data directory: `store.json`.

The file says which node's data lies here and in what format; it is written once, before anything else, and read
first whenever the directory is opened. A lock keeps a second process from opening it (`node.io`).
Source: docs/storage.md, "store.json".
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from node.store.disk import TO_THE_END, Append, Disk, MakeDir, Read, Remove, Rename, Sync, SyncDir
from node.store.options import StoreOptions
from node.store.records import NewerFormat

FORMAT: Final = 1
"""The format of the directory as a whole: which files there are, and what they mean together."""

STORE_FILE: Final = "store.json"
_NEW_STORE_FILE: Final = "store.json.new"

JOURNAL: Final = "journal"
QUEUES: Final = "queues"
MESSAGES: Final = "messages"
TRANSIENT: Final = "transient"
CORRUPT: Final = "corrupt"
RAFT: Final = "raft"
"""The directory of the cluster's metadata and this node's identity in it; it is not the store's."""
REMOVED_RAFT: Final = ".raft.removed"
"""The name of that directory while a reset removes all that a node keeps.

Without it, messages would be taken for a cluster's.
"""
SYNCED: Final = "synced.log"
NEW_SYNCED: Final = "synced.log.new"

_DIRECTORIES: Final = (JOURNAL, QUEUES, MESSAGES)
"""The directories that a store always has."""

FILES: Final = ("metadata.log", "metadata.log.tmp", SYNCED, NEW_SYNCED)
"""The files of the store beside `store.json`."""

_OURS: Final = frozenset({JOURNAL, QUEUES, MESSAGES, TRANSIENT, CORRUPT, *FILES})
"""Names that may not be in the directory without a `store.json`."""

_HARMLESS: Final = frozenset(
    {"lock", "log", "logs", "lost+found", RAFT, "control.sock", "telemetry", _NEW_STORE_FILE}
)
_HARMLESS_ENDINGS: Final = (".log", ".conf")
"""Names and endings of names that may be there before `store.json`.

An operator may have put these files here before the first start, or a start that got no further has left them. The
metadata of a cluster and the control socket come before the store. Telemetry stays when a node is reset.
"""

_SEGMENT_ENTRIES: Final = StoreOptions().segment_entries

_NAMES_SHOWN_MAX: Final = 5


class StoreError(Exception):
    """The data directory cannot be used; the text is for the operator."""


class DirectoryOfAnotherNode(StoreError):
    """The data directory belongs to a node of another name."""


class NotAStore(StoreError):
    """The directory has other files and no store, or its `store.json` is damaged."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The contents of `store.json`.

    node: the node's full name.   segment_entries: see `StoreOptions`; the value at the store's creation stays.
    """

    format: int
    node: str
    segment_entries: int


def read_identity(disk: Disk) -> Identity | None:
    """Return the identity of the data directory; None if it is a new one.

    Raises NotAStore, NewerFormat, OSError.
    """
    names = disk.names("")
    if STORE_FILE in names:
        return _parse(bytes(disk.run([Read(STORE_FILE, 0, TO_THE_END)])[0]))
    ours = [name for name in names if name in _OURS]
    if ours:
        raise NotAStore(
            f"{STORE_FILE} is missing, but {_listed(ours)} {'is' if len(ours) == 1 else 'are'} there: "
            "restore the file from a backup, or use another data directory"
        )
    foreign = [name for name in names if not _is_harmless(name)]
    if foreign:
        raise NotAStore(
            f"the data directory holds something else than a store ({_listed(foreign)}): "
            "use a new or an empty one"
        )
    return None


def claim(disk: Disk, node: str, segment_entries: int = _SEGMENT_ENTRIES) -> Identity:
    """Make a new directory this node's store, or check that it is; return its identity.

    segment_entries: of a new store.
    Raises DirectoryOfAnotherNode, NotAStore, NewerFormat, OSError.
    """
    identity = read_identity(disk)
    if identity is None:
        identity = Identity(FORMAT, node, segment_entries)
        _create(disk, identity)
    elif identity.node != node:
        raise DirectoryOfAnotherNode(
            f"the data directory belongs to node {identity.node}, and this is {node}: "
            "start it under its old name (--name), or use another data directory"
        )
    # Each time, as a crash may have come between the file and the directories.
    disk.run([*map(MakeDir, _DIRECTORIES), SyncDir("")])
    return identity


def _create(disk: Disk, identity: Identity) -> None:
    """Write `store.json`, before any other file of the store is there."""
    text = json.dumps(asdict(identity)) + "\n"
    disk.run(
        [
            Remove(_NEW_STORE_FILE),
            Append(_NEW_STORE_FILE, [text.encode()]),
            Sync(_NEW_STORE_FILE),
            Rename(_NEW_STORE_FILE, STORE_FILE),
            SyncDir(""),
        ]
    )


def _parse(data: bytes) -> Identity:
    try:
        found: Any = json.loads(data)
    except ValueError as error:  # bad UTF-8 is one too
        raise NotAStore(f"{STORE_FILE} is damaged: {error}") from None
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise NotAStore(f"{STORE_FILE} is damaged: it doesn't say its format")
    if found["format"] > FORMAT:
        raise NewerFormat(
            f"{STORE_FILE}: the data directory has format {found['format']}, written by a later version; "
            f"this one knows up to {FORMAT}"
        )
    node, entries = found.get("node"), found.get("segment_entries", _SEGMENT_ENTRIES)
    if found["format"] < 1 or not isinstance(node, str) or type(entries) is not int or entries < 1:
        raise NotAStore(f"{STORE_FILE} is damaged: it doesn't say whose it is")
    return Identity(found["format"], node, entries)


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith(".") or name.endswith(_HARMLESS_ENDINGS)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown}, …"
