"""Messages that wait in a delayed exchange, as operators look at them and cancel them, on the node that has them.

A message's id is its number in the queue where it waits: the same on all copies, before and after a restart or a
failover, and never given again. What is on disk is read in pieces; nothing leaves its place.
Source: docs/delayed.md, "Watching and changing".
"""

import asyncio
from typing import Final, NamedTuple

from node.admin.admin import WAIT_S, AdminError
from node.broker.broker import Broker
from node.catalogue.delayed import waiting_queue
from node.queue.delayed_queue import DelayedQueue
from node.queue.reader import Found, QueueReader
from node.queue.run import Envelope, Run
from node.queue.storage import Page

PAGE_MAX: Final = 500
"""The most messages of an answer."""

PAGE_MAX_BYTES: Final = 4 * 1024 * 1024
"""The bytes of messages above which an answer has no more of them; one may be larger."""

READS_MAX: Final = 64
"""The most reads for an answer; where numbers are far apart it has fewer messages than were asked for."""

_SPAN: Final = 4096
"""The numbers that one read looks for."""

BUSY_S: Final = 0.02
"""The pause before another try to cancel a message while the disk is asked for others."""


class WaitingMessage(NamedTuple):
    """A message that waits.   id: its number.   due_ms: when it is due, in milliseconds since 1970."""

    id: int
    due_ms: int
    envelope: Envelope
    content: bytes


class WaitingPage(NamedTuple):
    """Some of the messages, by rising id.   following: the id from which the next page begins; None: that is all."""

    messages: list[WaitingMessage]
    following: int | None


async def browse(broker: Broker, vhost: str, exchange: str, first: int, count: int) -> WaitingPage:
    """Return messages that wait in a delayed exchange, whose queue's master is here, from an id on.

    count: the most that are wanted; no more than `PAGE_MAX` come.
    Raises: AdminError "unavailable" if the messages are not on this node, or the disk does not answer in time.
    """
    queue = _queue(broker, vhost, exchange)
    reader = QueueReader(queue, lambda: ())
    found: list[WaitingMessage] = []
    left, room = min(count, PAGE_MAX), PAGE_MAX_BYTES
    following = _from(queue, first)
    try:
        async with asyncio.timeout(WAIT_S):
            for _ in range(READS_MAX):
                if following is None or left <= 0 or room <= 0:
                    break
                part = await _read(reader, range(following, following + _SPAN), room, broker.now)
                at = part.upto
                for message in _messages(part.runs, broker.storage.epoch_s):
                    if left <= 0:
                        at = message.id
                        break
                    found.append(message)
                    left -= 1
                    room -= len(message.content)
                following = _from(queue, at)
    except TimeoutError:
        raise AdminError("unavailable", f"no answer within {WAIT_S:g} s") from None
    return WaitingPage(found, following)


async def cancel(broker: Broker, vhost: str, exchange: str, message: int) -> bool:
    """Drop a message that waits in a delayed exchange, whose queue's master is here; False: it does not wait there.

    Raises: AdminError as `browse`.
    """
    queue = _queue(broker, vhost, exchange)
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_done(was_there: bool) -> None:
        if not answer.done():
            answer.set_result(was_there)

    try:
        async with asyncio.timeout(WAIT_S):
            while not queue.withdraw(message, on_done):
                await asyncio.sleep(BUSY_S)
                if queue.is_deleted:
                    raise _elsewhere(vhost, exchange)
            broker.wake()
            return await answer
    except TimeoutError:
        raise AdminError("unavailable", f"no answer within {WAIT_S:g} s") from None


def _queue(broker: Broker, vhost: str, exchange: str) -> DelayedQueue:
    live = broker.vhosts.get(vhost)
    queue = None if live is None else live.queues.get(waiting_queue(exchange))
    if not isinstance(queue, DelayedQueue):
        raise _elsewhere(vhost, exchange)
    return queue


def _elsewhere(vhost: str, exchange: str) -> AdminError:
    return AdminError(
        "unavailable", f"the messages of exchange '{exchange}' in vhost '{vhost}' are not on this node"
    )


def _from(queue: DelayedQueue, first: int) -> int | None:
    """Return the lowest number from `first` on that may be of a message; None: there is none."""
    backlog = queue.backlog
    run = next((each for level in backlog.levels for each in level.in_memory(first)), None)
    page = next((each for level in backlog.levels for each in level.on_disk(first)), None)
    starts = [] if run is None else [run.seqs.start]
    if page is not None:
        starts.append(page.first_seq if isinstance(page, Page) else page.seqs.start)
    return max(first, min(starts)) if starts else None


async def _read(reader: QueueReader, wanted: range, max_bytes: int, now: float) -> Found:
    answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    def on_done(found: Found) -> None:
        if not answer.done():
            answer.set_result(found)

    reader.read([wanted], max_bytes, now, on_done)
    return await answer


def _messages(runs: list[Run], epoch_s: float) -> list[WaitingMessage]:
    return [
        WaitingMessage(seq, round((run.expiry + epoch_s) * 1000), run.envelope, content)
        for run in runs
        for seq, content in zip(run.seqs, run.contents, strict=True)
    ]
