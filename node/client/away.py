"""Runs that leave this node: published to queues on other nodes, or to queues here that have copies there.

Whoever publishes more than is taken there waits, and a run is confirmed when every queue has answered for it.
Source: amqp-behaviour §4.3, §9.1.
"""

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from node.queue.acceptance import Acceptance
from node.queue.run import Envelope
from node.queue.safety import is_any_durable

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.queue.live_queue import RemoteQueue
    from node.queue.queue import Queue


def publish_away(
    channel: "Channel",
    envelope: Envelope,
    contents: list[bytes],
    size: int,
    queues: "Collection[Queue]",
    remote: "Collection[RemoteQueue]",
    refused: Collection[int],
) -> None:
    """Publish a run to queues on other nodes, or with copies there. It is confirmed when all of them have it.

    queues: those of this node, which have the run already but for what they `refused`.
    """
    mirrors = [(queue, queue.mirror) for queue in queues if queue.mirror is not None]
    for _, mirror in mirrors:
        if mirror.is_congested:
            channel.connection.throttle.hold_for_peer(mirror)
    confirms = channel.confirms
    if confirms is None:
        for away in remote:
            send_away(channel, away, envelope, contents, size, None)
        return
    count = len(contents)
    first = confirms.expect(count)
    if not remote and len(mirrors) == len(queues) == 1:
        ((queue, mirror),) = mirrors
        for index in sorted(refused):
            confirms.reject(first + index, first + index)
            channel.connection.confirming[channel] = None
        is_kept = envelope.persistent and queue.is_durable
        meter = channel.broker.meter
        waiter = channel if meter is None else meter.timed(channel, queues, channel.broker.now)
        mirror.await_stable(waiter, first, first + count - 1, is_kept=is_kept)
        return
    parties = len(remote) + len(mirrors) + 1
    acceptance = Acceptance(count, parties, partial(channel.accepted, first))
    for away in remote:
        send_away(channel, away, envelope, contents, size, acceptance)
    for queue, mirror in mirrors:
        mirror.await_stable(acceptance, 0, 0, is_kept=envelope.persistent and queue.is_durable)
    acceptance.refused.update(refused)
    if envelope.persistent and is_any_durable(queue for queue in queues if queue.mirror is None):
        channel.broker.storage.await_safety(acceptance, 0, 0)
    else:
        acceptance.accept()


def send_away(
    channel: "Channel",
    queue: "RemoteQueue",
    envelope: Envelope,
    contents: list[bytes],
    size: int,
    acceptance: Acceptance | None,
) -> None:
    """Publish to a queue on another node; who publishes waits if too much is on its way there."""
    queue.send(envelope, contents, size, acceptance)
    if queue.is_congested:
        channel.connection.throttle.hold_for_peer(queue)
