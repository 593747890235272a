"""docs/delayed.md: delayed messages outlive the kill -9 of the node where they wait; none comes early."""

import json
import time
from collections.abc import Callable
from typing import Any, Final

import pika
import pytest

from tests.conformance.pika_steps import parameters
from tests.kit.mirror_steps import Mirrored, await_shape
from tests.kit.server_cluster import Cluster, is_rabbitmq

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ has no delayed exchanges without a plug-in"),
]

COUNT: Final = 400
FIRST_MS: Final = 10_000
STEP_MS: Final = 10
WITHIN_S: Final = 60.0


@pytest.mark.parametrize("is_killed_late", [False, True])
def test_none_is_lost_and_none_comes_early(
    shaken_cluster: Cluster, mirrored: Mirrored, name: Callable[[str], str], is_killed_late: bool
) -> None:
    """The node is killed before the first message is due, or while they go out."""
    cluster, queue, exchange = shaken_cluster, mirrored(), name("delayed")
    with pika.BlockingConnection(parameters(cluster[0])) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
    await_shape(cluster[1], f"amq.delayed.{exchange}", master=cluster[0].name, synced=2)
    with pika.BlockingConnection(parameters(cluster[1])) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, queue)
        await_shape(cluster[1], queue, synced=2)
        channel.confirm_delivery()
        due: list[float] = []
        for number in range(COUNT):
            delay = FIRST_MS + (number * 37 % COUNT) * STEP_MS
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay})
            due.append(time.monotonic() + delay / 1000)
            channel.basic_publish(exchange, queue, b"%d" % number, properties)
        seen: dict[int, float] = {}
        again = 0
        ends_at = time.monotonic() + WITHIN_S
        kills_at: float | None = min(due) + 2.0 if is_killed_late else time.monotonic()

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal again
            again += int(body) in seen
            seen.setdefault(int(body), time.monotonic())
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, take)
        while len(seen) < COUNT and time.monotonic() < ends_at:
            connection.process_data_events(time_limit=0.05)
            if kills_at is not None and time.monotonic() >= kills_at:
                cluster[0].kill()
                kills_at = None
        assert len(seen) == COUNT, f"{COUNT - len(seen)} lost"
        early = [due[number] - at for number, at in seen.items() if at < due[number]]
        assert early == []
        late = sorted(at - due[number] for number, at in seen.items())
        print(f"again: {again}; late: median {late[COUNT // 2]:.3f} s, most {late[-1]:.3f} s")
        channel.exchange_delete(exchange)


def test_any_node_tells_how_many_wait_and_guards_their_queue(
    shaken_cluster: Cluster, name: Callable[[str], str]
) -> None:
    """On the command line, of a node that is not their master; the queue cannot be deleted, but purged."""
    cluster, exchange = shaken_cluster, name("delayed")
    waiting = f"amq.delayed.{exchange}"
    with pika.BlockingConnection(parameters(cluster[0])) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        await_shape(cluster[1], waiting, master=cluster[0].name, synced=2)
        for _ in range(3):
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000})
            channel.basic_publish(exchange, "", b"", properties)

        def told() -> Any:
            done = cluster[2].ctl("-q", "list_exchanges", "name", "messages_delayed", "--formatter", "json")
            rows = {row["name"]: row["messages_delayed"] for row in json.loads(done.output)}
            assert rows["amq.direct"] == ""
            return rows[exchange]

        assert told() == 3
        assert cluster[2].ctl("delete_queue", waiting).code != 0
        assert told() == 3
        assert cluster[2].ctl("purge_queue", waiting).code == 0
        assert told() == 0
        channel.exchange_delete(exchange)
