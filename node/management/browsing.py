"""Ready messages of a queue, read by their number: nothing about the queue changes, and none counts as delivered.

    GET /queues/…/messages ─► the master's node ─► QueueReader: memory, disk ─► rows

They come in the order of their numbers, which is the queue's order but for priorities. Messages that clients have are
left out. Another node may ask for them, so nothing of HTTP is imported here.
Source: docs/dead_letters.md, "Browsing".
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from node.admin.replay import Choice, newest_death
from node.broker.broker import Broker
from node.management.shown import encoded, shown_properties
from node.queue.content import decode_content
from node.queue.queue import Queue
from node.queue.reader import Found, QueueReader
from node.queue.run import Run

BROWSED_MAX: Final = 1000
"""The most messages of one answer."""

BROWSED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The most bytes of payloads of one answer, which goes from node to node as a whole; a single one may be larger."""

CUT_MAX_BYTES: Final = 1024 * 1024
"""The most bytes of one payload."""

DRY_MAX: Final = 100_000
"""The most messages that a dry run looks at, about."""

_CHUNK_BYTES: Final = 1024 * 1024
_READ_S: Final = 20.0
"""How long the disk may take for one read."""


async def browse(
    broker: Broker, vhost: str, name: str, *, first: int, count: int, cut: int, encoding: str
) -> dict[str, Any] | None:
    """Return up to `count` messages with number `first` or a higher one, and the number to go on with.

    cut: the bytes of each payload.   encoding: `auto` or `base64`.
    Returns: None: the queue does not live here. `next` is None behind the last message.   Raises: TimeoutError.
    """
    queue = _live(broker, vhost, name)
    if queue is None:
        return None
    rows: list[dict[str, Any]] = []
    size, count, cut = 0, min(count, BROWSED_MAX), min(cut, CUT_MAX_BYTES)
    async for run in _runs(broker, queue, max(first, 1)):
        for index, number in enumerate(run.seqs):
            if len(rows) >= count or size >= BROWSED_BYTES_MAX:
                return {"messages": rows, "next": number}
            row = _row(run, index, number, cut, encoding)
            size += min(cut, row["payload_bytes"])
            rows.append(row)
    return {"messages": rows, "next": None}


async def would_replay(broker: Broker, vhost: str, name: str, choice: Choice) -> dict[str, Any] | None:
    """Return how many messages of a queue a replay would take, by the queue to which they go.

    Returns: None: the queue does not live here.   Raises: TimeoutError.
    """
    queue = _live(broker, vhost, name)
    if queue is None:
        return None
    looked_at, chosen = 0, Counter[str]()
    async for run in _runs(broker, queue, 1):
        for content in run.contents:
            properties, _ = decode_content(content)
            headers = properties.headers or {}
            death = newest_death(headers)
            looked_at += 1
            if death is not None and choice.takes(headers):
                chosen[death.queue] += 1
        if looked_at >= DRY_MAX:
            break
        await asyncio.sleep(0)  # others have their turn
    return {
        "looked_at": looked_at,
        "replayed": chosen.total(),
        "to": dict(chosen),
        "not_chosen": looked_at - chosen.total(),
        "failed": {},
        "is_empty": looked_at < DRY_MAX,
    }


def _live(broker: Broker, vhost: str, name: str) -> Queue | None:
    live = broker.vhosts.get(vhost)
    queue = None if live is None else live.queues.get(name)
    return queue if isinstance(queue, Queue) else None


async def _runs(broker: Broker, queue: Queue, first: int) -> AsyncIterator[Run]:
    """Yield the ready messages of a queue from number `first` on; it may change meanwhile."""
    reader = QueueReader(queue, tuple)
    while first < queue.next_seq and not queue.is_deleted:
        found = await _read(broker, reader, range(first, queue.next_seq))
        for run in found.runs:
            yield run
        first = found.upto


async def _read(broker: Broker, reader: QueueReader, wanted: range) -> Found:
    answered: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    def done(found: Found) -> None:
        if not answered.done():
            answered.set_result(found)

    reader.read([wanted], _CHUNK_BYTES, broker.now, done)
    broker.wake()  # a turn asks the disk
    async with asyncio.timeout(_READ_S):
        return await answered


def _row(run: Run, index: int, number: int, cut: int, encoding: str) -> dict[str, Any]:
    properties, body = decode_content(run.contents[index])
    text, used = encoded(body[:cut], encoding)
    return {
        "number": number,
        "payload_bytes": len(body),
        "redelivered": run.deliveries > 0,
        "delivery_count": run.deliveries,
        "exchange": run.envelope.exchange,
        "routing_key": run.envelope.routing_key,
        "properties": shown_properties(properties) or [],
        "payload": text,
        "payload_encoding": used,
    }
