"""`fluffle store check` and `fluffle store dump` show the data directory of a node that does not run.

Both only read. Exit codes: 0 when all is well or a crash has left torn ends, 1 when something is broken, 2 when
there is nothing to read (no store, a running node, a newer format), 64 for a bad command line.
"""

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from node.catalogue.records import QueueRecord
    from node.io.disk import ReadOnlyDisk
    from node.store.directory import Identity
    from node.store.inspection import Inspection, Listed, Metadata

Found = TypeVar("Found")

EX_OK: Final = 0
EX_BROKEN: Final = 1
EX_NOTHING: Final = 2


class _Nothing(Exception):
    """No store can be read; the text says why."""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the commands and their arguments to the parser."""
    parser = commands.add_parser("store", help="inspect the data directory of a node that does not run")
    tools = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = tools.add_parser("check", help="show the contents, and any damage")
    check.add_argument("directory", metavar="DIR", help="the node's data directory")
    check.set_defaults(run=run_check)
    dump = tools.add_parser("dump", help="print the messages, one JSON object a line")
    dump.add_argument("directory", metavar="DIR", help="the node's data directory")
    dump.add_argument("--vhost", metavar="NAME", help="only queues of this virtual host")
    dump.add_argument("--queue", metavar="NAME", help="only queues of this name, or with this uid")
    dump.add_argument("--bodies", action="store_true", help="with the bodies of the messages")
    dump.set_defaults(run=run_dump)


def run_check(arguments: argparse.Namespace) -> int:
    """Print the contents of the store and its damage. Returns: the exit code."""
    from node.store.findings import Damage
    from node.store.inspection import inspect

    try:
        disk, identity = _open(arguments.directory)
        metadata = _metadata(arguments.directory, disk, identity)
        inspection = _guarded(lambda: inspect(disk, identity, metadata))
        if _is_running(arguments.directory):
            raise _Nothing(f"a node was started on {arguments.directory} meanwhile: stop it first")
    except _Nothing as error:
        return _fail(str(error))
    _print_inspection(arguments.directory, inspection)
    is_broken = any(finding.damage is not Damage.TORN for finding in inspection.findings)
    return EX_BROKEN if is_broken else EX_OK


def run_dump(arguments: argparse.Namespace) -> int:
    """Print the messages. Returns: the exit code."""
    try:
        disk, identity = _open(arguments.directory)
        metadata = _metadata(arguments.directory, disk, identity)
        return _guarded(lambda: _dump(disk, identity, metadata, arguments))
    except _Nothing as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader has closed the pipe. Nothing more must be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EX_OK


def _open(path: str) -> "tuple[ReadOnlyDisk, Identity]":
    """Open the disk and read its identity. Raises _Nothing."""
    from node.io.data_directory import DataDirectoryError
    from node.io.disk import ReadOnlyDisk
    from node.store.directory import StoreError, read_identity

    try:
        disk = ReadOnlyDisk(path)
        if disk.is_locked:
            raise _Nothing(f"a node runs on {path}: stop it first")
        identity = _guarded(lambda: read_identity(disk))
    except DataDirectoryError as error:
        raise _Nothing(str(error)) from None
    except StoreError as error:
        raise _Nothing(f"{path}: {error}") from None
    except OSError as error:
        raise _Nothing(f"{path}: {error.strerror}") from None
    if identity is None:
        raise _Nothing(f"{path} holds no store")
    return disk, identity


def _metadata(path: str, disk: "ReadOnlyDisk", identity: "Identity") -> "Metadata":
    """Return the queues' metadata: from the node's own file, or from its copy of the cluster's."""
    from node.store.directory import RAFT
    from node.store.inspection import cluster_metadata, read_metadata, unknown_metadata

    if not os.path.isdir(os.path.join(path, RAFT)):
        return _guarded(lambda: read_metadata(disk))
    from node.clustering.offline import OfflineError, read_catalogue

    try:
        catalogue = read_catalogue(path)
    except OfflineError as error:
        print(f"fluffle: {error.text}", file=sys.stderr)
        return unknown_metadata(disk, [])
    if catalogue is None:  # a RAM node has its metadata from the others
        return unknown_metadata(disk, [])
    return cluster_metadata(catalogue, identity.node)


def _is_running(path: str) -> bool:
    from node.io.data_directory import is_locked

    return is_locked(path)


def _guarded(look: Callable[[], Found]) -> Found:
    """Return the result of `look`. Raises _Nothing where files can't be read, or have a newer format."""
    from node.store.records import NewerFormat

    try:
        return look()
    except NewerFormat as error:
        raise _Nothing(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _Nothing(f"cannot read {error.filename or 'the store'}: {error.strerror}") from None


# --- check ---


def _print_inspection(directory: str, inspection: "Inspection") -> None:
    identity, recovered, contents = inspection.identity, inspection.recovered, inspection.contents
    stop = (
        "cleanly" if recovered.was_clean else "not cleanly: the next start marks all messages as redelivered"
    )
    print(f"directory      {directory}")
    print(f"node           {identity.node}")
    print(f"format         {identity.format}")
    print(f"stopped        {stop}")
    print(
        f"journal        {inspection.journal_files} files, {inspection.journal_bytes:,} bytes, "
        f"{recovered.operations:,} operations"
    )
    print(
        f"message store  {contents.files} files, {contents.bytes:,} bytes, {contents.garbage_bytes:,} of them garbage"
    )
    print(f"messages       {recovered.messages:,}, {recovered.body_bytes:,} bytes")
    if recovered.unknown_queues and inspection.has_metadata:
        fate = "removes their files" if inspection.is_catalogue_whole else "moves their files to corrupt/"
        count = len(recovered.unknown_queues)
        print(f"left over      {count:,} queues that no longer exist; the next start {fate}")
    print()
    _print_queues(inspection)
    print()
    for finding in inspection.findings:
        print(f"{finding.damage.value}: {finding}")
    if not inspection.findings:
        print("nothing is broken")


def _print_queues(inspection: "Inspection") -> None:
    """Print one row for each queue."""
    head = ("vhost", "queue", "messages", "bytes", "segments", "journaled")
    rows = [
        (
            _shown(queue.record.vhost),
            _shown(queue.record.name),
            f"{queue.messages:,}",
            f"{queue.body_bytes:,}",
            f"{queue.segments:,}",
            f"{queue.operations:,}",
        )
        for queue in inspection.queues
    ]
    if not rows:
        print("no durable queues")
        return
    if not inspection.has_metadata:
        print("the metadata cannot be read: queues are shown by their uid")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        names = [text.ljust(width) for text, width in zip(row[:2], widths, strict=False)]
        numbers = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        print("  ".join((*names, *numbers)))


def _shown(name: str) -> str:
    """Return a name on one line of a terminal, without control characters."""
    return name if name.isprintable() else repr(name)


# --- dump ---


def _dump(
    disk: "ReadOnlyDisk", identity: "Identity", metadata: "Metadata", arguments: argparse.Namespace
) -> int:
    from node.store.inspection import Listing

    queues = {uid: record for uid, record in metadata.queues.items() if _is_wanted(record, arguments)}
    if not queues and (arguments.queue is not None or arguments.vhost is not None):
        raise _Nothing("there is no such durable queue")
    listing = Listing(disk, queues, identity.segment_entries, has_bodies=arguments.bodies)
    for message in listing:
        print(json.dumps(_line(message, has_body=arguments.bodies)))
    sys.stdout.flush()
    damaged = sorted({finding.path for finding in metadata.findings} | set(listing.damaged))
    if damaged:
        print(
            f"fluffle: something may be missing: damaged: {', '.join(damaged)}; see `fluffle store check`",
            file=sys.stderr,
        )
    return EX_BROKEN if damaged else EX_OK


def _is_wanted(record: "QueueRecord", arguments: argparse.Namespace) -> bool:
    return arguments.vhost in (None, record.vhost) and arguments.queue in (None, record.name, record.uid)


def _line(message: "Listed", *, has_body: bool) -> dict[str, object]:
    envelope, entry = message.entry.envelope, message.entry
    line: dict[str, object] = {
        "vhost": message.record.vhost,
        "queue": message.record.name,
        "seq": message.seq,
        "exchange": envelope.exchange,
        "routing_key": envelope.routing_key,
        "priority": envelope.priority,
        "payload_bytes": message.size,
        "expires_at_ms": entry.expires_at_ms or None,
        "deliveries": message.deliveries,
        "store_id": message.store_id or None,
    }
    if has_body:
        line.update(_payload(message.content))
    return line


def _payload(content: bytes | None) -> dict[str, object]:
    """Return the body as the management API does (management §2.3)."""
    from node.amqp.frames import split_content

    if content is None:
        return {"payload": None, "payload_encoding": "lost"}
    body = split_content(content)[1]
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode("ascii"), "payload_encoding": "base64"}


def _fail(problem: str) -> int:
    print(f"fluffle: {problem}", file=sys.stderr)
    return EX_NOTHING
