"""amqp-behaviour §4.8: an idle consumer has a message before the next method is answered."""

from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_METHOD
from node.amqp.frames import content_frames, method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from node.amqp.properties import Properties, content_header
from tests.kit.amqp_client import Connection

ROWS: list[Callable[[str], tuple[Method, Method]]] = [
    lambda queue: (BasicGet(queue=queue), BasicGetEmpty()),
    lambda queue: (QueuePurge(queue=queue), QueuePurgeOk(0)),
    lambda queue: (QueueDeclare(queue=queue, passive=True), QueueDeclareOk(queue, 0, 1)),
    lambda queue: (QueueDelete(queue=queue, if_empty=True), QueueDeleteOk(0)),
    lambda queue: (BasicCancel("c"), BasicCancelOk("c")),
    lambda queue: (ChannelClose(200, ""), ChannelCloseOk()),
]


@pytest.mark.parametrize("row", ROWS)
def test_publish_and_method_in_one_segment(
    connection: Connection, row: Callable[[str], tuple[Method, Method]]
) -> None:
    """A deliver may come after the answer, but it comes."""
    channel = connection.channel(1)
    queue = channel.declare(exclusive=True)
    channel.send(BasicConsume, queue=queue, consumer_tag="c", no_ack=True)
    channel.expect(BasicConsumeOk)
    method, answer = row(queue)
    content = content_frames(1, content_header(1, Properties()), b"m", 131072)
    publish = method_frame(1, BasicPublish(routing_key=queue)) + content
    connection.send_bytes(publish + method_frame(1, method))
    frames = [connection.next_frame(1) for _ in range(4)]
    came = {type(each): each for each in (decode_method(f.payload) for f in frames if f.type == FRAME_METHOD)}
    assert came.keys() == {BasicDeliver, type(answer)}
    assert came[type(answer)] == answer
