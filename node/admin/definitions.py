"""Import and export definitions: over HTTP, from the command line, and from files at each start.

Source: management §2.2; what RabbitMQ 3.10.8 does.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from node.admin import permissions, policies, users, vhosts
from node.admin.admin import Admin, AdminError
from node.catalogue.commands import Bind, DeclareQueue, SetGlobalParameter, SetPolicy
from node.catalogue.holding import hold_header
from node.catalogue.records import Json
from node.definitions.document import (
    LIMIT_EXCEEDED,
    Definitions,
    VhostItem,
    check_queue_limits,
    check_references,
    read_steps,
)
from node.definitions.export import Stamp, export_steps
from node.definitions.reading import DefinitionsInvalid
from node.definitions.rows import Row
from node.io.turns import next_slice
from node.log import admin as log_admin
from node.version import COMPATIBLE_VERSION

ItemT = TypeVar("ItemT")
ReturnT = TypeVar("ReturnT")

AT_ONCE: Final = 25
"""The most changes that are under way at the same time: they share a sync of the disk, and hold the loop for 5 ms at
most.
"""

FILE_BYTES_MAX: Final = 1 << 30

IMPORTED_HASH: Final = "imported_definition_hash_value"
"""The global parameter with the digest of the last imported definitions, as RabbitMQ calls it."""

AT_BOOT: Final = "rmq-internal"
"""The user in the log for changes at a node's start."""

NOT_JSON: Final = "failed_to_parse_json"

_UID_BYTES: Final = 16


class DefinitionsUnreadable(Exception):
    """Definitions for the start cannot be imported; the message says which file, and why."""


# --- in ---


async def import_definitions(
    admin: Admin, document: Mapping[str, Any], *, vhost: str | None = None, skips_unsupported: bool = False
) -> list[str]:
    """Put everything that a document names; anything else stays. Raises: AdminError.

    vhost: the one that the whole document is for; None: the document says so itself.   skips_unsupported: leave out
    what this broker does not have. Returns: a text for each thing that was left out for that.

    Existing queues, exchanges and bindings stay as they are, even when they differ from the document's. A mistake in
    the document is found before anything is changed.
    """
    admin.logger.info(log_admin.importing(admin.by, vhost))
    if vhost is not None:
        vhosts.existing(admin, vhost)
    try:
        steps = read_steps(
            document,
            vhost=vhost,
            node=admin.config.node_name,
            skips_unsupported=skips_unsupported,
            exchange_types=admin.catalogue.plugins.exchange_types,
            plugins=admin.catalogue.plugins.by_name,
        )
        found = await in_slices(steps)
        check_references(found, admin.catalogue)
        check_queue_limits(found, admin.catalogue)
    except DefinitionsInvalid as invalid:
        raise AdminError("invalid", _reason(invalid.reason, vhost)) from None
    await _put(admin, found)
    return found.left_out


async def _put(admin: Admin, found: Definitions) -> None:
    """Put the definitions in RabbitMQ's order, but limits of vhosts last."""
    for text in found.left_out:
        admin.logger.warning(log_admin.import_unsupported(text, admin.by))
    for noun, name in found.skipped:
        admin.logger.warning(log_admin.import_skipped(noun, name, admin.by))
    are_new = await _each(admin, "users", found.users, lambda item: users.put_item(admin, item))
    await _each(admin, "vhosts", found.vhosts, lambda item: _put_vhost(admin, item))
    for user, is_new in zip(found.users, are_new, strict=True):
        if is_new:
            for vhost, patterns in (user.permissions or {}).items():
                await permissions.set_permissions(admin, user.name, vhost, *patterns)
    await _each(
        admin,
        "permissions",
        found.permissions,
        lambda row: permissions.set_permissions(
            admin, row.user, row.vhost, row.configure, row.write, row.read
        ),
    )
    await _each(
        admin,
        "topic permissions",
        found.topic_permissions,
        lambda row: permissions.set_topic_permissions(
            admin, row.user, row.vhost, row.exchange, row.write, row.read
        ),
    )
    await _each(
        admin,
        "exchanges",
        found.exchanges,
        lambda command: admin.submit(admin.broker.with_waiting_queue(replace(command, declared_by=admin.by))),
    )
    await _each(admin, "global runtime parameters", found.global_parameters, admin.submit)
    # One at a time: each is held against all queues that are there.
    await _each(admin, "policies", found.policies, lambda command: _set_policy(admin, command), at_once=1)
    await _each(admin, "runtime parameters", found.parameters, admin.submit)
    await _each(admin, "queues", found.queues, lambda command: _put_queue(admin, command))
    await _each(admin, "bindings", found.bindings, lambda command: _bind(admin, command))
    await _each(admin, "limits of virtual hosts", found.limits, admin.submit)


async def _each(
    admin: Admin,
    noun: str,
    items: Sequence[ItemT],
    put: Callable[[ItemT], Awaitable[ReturnT]],
    at_once: int = AT_ONCE,
) -> list[ReturnT]:
    """Put the items, a few at a time and begun in their order. Raises: AdminError, of the first that failed."""
    if items:
        admin.logger.info(log_admin.importing_items(len(items), noun))
    done: list[ReturnT] = []
    for at in range(0, len(items), at_once):
        for result in await asyncio.gather(*map(put, items[at : at + at_once]), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            done.append(result)
        await next_slice()
    return done


async def _put_vhost(admin: Admin, item: VhostItem) -> bool:
    """Put a vhost. The importing user may use a new one, as the creator of a vhost otherwise."""
    return await vhosts.put_vhost(
        admin,
        item.name,
        description=item.description,
        tags=item.tags,
        tracing=item.tracing,
        default_queue_type=item.default_queue_type,
        owner=admin.by if admin.catalogue.user(admin.by) is not None else None,
    )


async def _set_policy(admin: Admin, command: SetPolicy) -> None:
    await policies.put_holding(admin, command.vhost, command.definition)
    await admin.submit(command)


async def _put_queue(admin: Admin, command: DeclareQueue) -> None:
    if admin.catalogue.queue(command.vhost, command.name) is None:
        header = hold_header(command.arguments)
        holding = None if header is None else admin.broker.holding(command.vhost, header)
        if holding is not None:
            await admin.submit(holding)
        uid = admin.broker.entropy(_UID_BYTES).hex()
        await admin.submit(admin.broker.placed(replace(command, uid=uid)))


async def _bind(admin: Admin, command: Bind) -> None:
    """Add a binding. One whose ends do not exist is left out, as in RabbitMQ."""
    try:
        await admin.submit(command)
    except AdminError as error:
        if error.kind != "not_found":
            raise
        admin.logger.warning(log_admin.binding_skipped(error.text))


def _reason(reason: "str | list[Json]", vhost: str | None) -> "str | list[Json]":
    """Return the reason for the answer: for one vhost RabbitMQ gives only the text of a limit."""
    if vhost is not None and isinstance(reason, list) and reason[0] == LIMIT_EXCEEDED:
        return str(reason[1])
    return reason


# --- out ---


async def export_definitions(admin: Admin, *, vhost: str | None = None, is_full: bool = False) -> Row:
    """Return the document of everything, or of one vhost. Raises: AdminError.   is_full: see `export_steps`."""
    if vhost is not None:
        vhosts.existing(admin, vhost)
    product = admin.config.product
    # Importers decide by the version what a document means.
    stamp = Stamp(COMPATIBLE_VERSION, product.name, product.version)
    return await in_slices(export_steps(admin.catalogue, stamp, vhost=vhost, is_full=is_full))


async def in_slices(steps: Generator[None, None, ReturnT]) -> ReturnT:
    """Run a generator of steps to its end, and let other tasks run after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: ReturnT = end.value
            return found
        await next_slice()


# --- at the start ---


async def load_at_boot(admin: Admin, path: str) -> None:
    """Import a file, or the files of a directory in the order of their names. Raises: DefinitionsUnreadable.

    Hidden files and entries that are no files are left out of a directory: Kubernetes puts such things there. With
    `definitions.skip_if_unchanged` nothing is done for the same definitions as at the last import.
    """
    files = await asyncio.to_thread(_read_files, path)
    if len(files) != 1 or files[0][0] != path:
        admin.logger.info(log_admin.applying_directory(path))
    options = admin.config.definitions
    digest = hashlib.new(options.hashing_algorithm, b"".join(data for _, data in files)).hexdigest()
    if options.skip_if_unchanged and admin.catalogue.global_parameter(IMPORTED_HASH) == digest:
        admin.logger.info(log_admin.definitions_unchanged())
        return
    for name, data in files:
        admin.logger.info(log_admin.applying_file(name))
        try:
            await import_definitions(admin, await asyncio.to_thread(parse, data))
        except (AdminError, ValueError) as error:
            text = error.text if isinstance(error, AdminError) else str(error)
            raise DefinitionsUnreadable(f"{name}: {text}") from error
    if options.skip_if_unchanged:
        await admin.submit(SetGlobalParameter(IMPORTED_HASH, digest))


def parse(data: bytes) -> dict[str, Any]:
    """Decode a document; no octets at all are an empty one. Raises: ValueError."""
    try:
        found = json.loads(data, parse_constant=_refuse) if data.strip() else {}
    except (ValueError, RecursionError):
        raise ValueError(NOT_JSON) from None
    if not isinstance(found, dict):
        raise ValueError(NOT_JSON)
    return found


def _refuse(constant: str) -> Json:
    raise ValueError(constant)


def _read_files(path: str) -> list[tuple[str, bytes]]:
    """Return the files to import with their contents. Raises: DefinitionsUnreadable."""
    try:
        if os.path.isdir(path):
            inside = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name[0] != "."]
            names = [name for name in inside if os.path.isfile(name)]
        else:
            names = [path]
        return [(name, _read(name)) for name in names]
    except OSError as error:
        raise DefinitionsUnreadable(f"{error.filename or path}: {error.strerror}") from error


def _read(name: str) -> bytes:
    size = os.path.getsize(name)
    if size > FILE_BYTES_MAX:
        raise DefinitionsUnreadable(f"{name}: {size} bytes are more than {FILE_BYTES_MAX}")
    with open(name, "rb") as file:
        return file.read()
