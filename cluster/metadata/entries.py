"""Entries of the Raft log: what PySyncObj keeps as tuples, and the first byte of their commands.

(command, index, term)        command = kind:octet rest
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from cluster.metadata.raft_pb2 import Entry

LogEntry: TypeAlias = tuple[bytes, int, int]

REGULAR: Final = 0
NO_OP: Final = 1
MEMBERSHIP: Final = 2

NO_OP_COMMAND: Final = bytes([NO_OP])

COMMAND_MAX_BYTES: Final = 1280 * 1024
"""The largest command of one entry. The core sends an entry of `BATCH_BYTES` or more in parts, in a way that breaks
(reliability §3.3), so there are none.
"""

BATCH_BYTES: Final = 2 * 1024 * 1024
"""How much of the log goes into one message; a message of the control stream has room for 8 MiB."""

ChangeKind: TypeAlias = Literal["add", "remove"]
Change: TypeAlias = tuple[ChangeKind, str]
"""A change of the voters."""

_KINDS: Final[tuple[ChangeKind, ...]] = ("add", "remove")


def encode_change(kind: ChangeKind, name: str) -> bytes:
    """Encode the command by which a member begins or ceases to vote."""
    return bytes([MEMBERSHIP]) + f"{kind} {name}".encode()


def decode_change(command: bytes) -> Change | None:
    """Decode a change of the voters; None for a command of another kind, or one that cannot be read."""
    if command[:1] != bytes([MEMBERSHIP]):
        return None
    kind, _, name = command[1:].decode("utf-8", "replace").partition(" ")
    for known in _KINDS:
        if kind == known and name:
            return known, name
    return None


def changed(voters: frozenset[str], changes: Iterable[Change]) -> frozenset[str]:
    """Return the voters after these changes."""
    for kind, name in changes:
        voters = voters | {name} if kind == "add" else voters - {name}
    return voters


def to_entry(entry: LogEntry) -> Entry:
    """Convert an entry to its protobuf message."""
    command, index, term = entry
    return Entry(index=index, term=term, command=command)


def from_entry(entry: Entry) -> LogEntry:
    """Convert a protobuf message to an entry as PySyncObj has it."""
    return entry.command, entry.index, entry.term
