"""Shovels within a broker and between Fluffle and RabbitMQ, in both directions: what arrives, and when it is told."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods as m
from node.amqp.properties import Properties
from tests.conformance.shovel.conftest import Shovels, drain
from tests.kit.amqp_client import Channel
from tests.kit.patience import wait_until
from tests.kit.servers import Server

BODIES = [b"%d" % number for number in range(20)]
MakeQueue = Callable[..., Channel]


def _uri(server: Server) -> str:
    return f"amqp://guest:guest@{server.host}:{server.port}/%2f?heartbeat=10"


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_within_the_broker(shovels: Shovels, queue: MakeQueue, name: Callable[[str], str], mode: str) -> None:
    source, destination = name("q"), name("r")
    queue(shovels.server, source, *BODIES)
    target = queue(shovels.server, destination)
    shovel = name("s")
    shovels.set_within(shovel, source, destination, ack_mode=mode)
    row = shovels.await_state(shovel, "running")
    assert drain(target, destination, len(BODIES)) == BODIES
    known = {
        key: row[key] for key in ("type", "vhost", "src_uri", "src_protocol", "dest_uri", "dest_protocol")
    }
    assert known == {
        "type": "dynamic",
        "vhost": "/",
        "src_uri": "amqp://",
        "src_protocol": "amqp091",
        "dest_uri": "amqp://",
        "dest_protocol": "amqp091",
    }
    assert (row["src_queue"], row["dest_queue"]) == (source, destination)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["to the other", "from the other"])
@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_between_fluffle_and_rabbitmq(
    shovels: Shovels, other: Server, queue: MakeQueue, name: Callable[[str], str], direction: str, mode: str
) -> None:
    here, there = (shovels.server, other) if direction == "to the other" else (other, shovels.server)
    source, destination = name("q"), name("r")
    large = b"x" * 400_000
    queue(here, source, *BODIES, large)
    target = queue(there, destination)
    shovel = name("s")
    shovels.set(
        shovel,
        src_uri=_uri(here),
        src_queue=source,
        dest_uri=[_uri(there)],
        dest_queue=destination,
        ack_mode=mode,
    )
    row = shovels.await_state(shovel, "running")
    assert drain(target, destination, len(BODIES) + 1) == [*BODIES, large]
    assert "guest" not in row["src_uri"] + row["dest_uri"]
    assert row["src_uri"] == f"amqp://{here.host}:{here.port}/%2f"


def test_an_exchange_at_each_end(shovels: Shovels, queue: MakeQueue, name: Callable[[str], str]) -> None:
    target = queue(shovels.server, destination := name("r"))
    target.call(m.QueueBind, queue=destination, exchange="amq.fanout")
    shovel = name("s")
    shovels.set(
        shovel,
        src_uri="amqp://",
        src_exchange="amq.topic",
        src_exchange_key="orders.*",
        dest_uri="amqp://",
        dest_exchange="amq.fanout",
        dest_exchange_key="other",
    )
    row = shovels.await_state(shovel, "running")
    for key, body in (("orders.new", b"one"), ("bills.new", b"two")):
        target.publish("amq.topic", key, body)
        target.expect(m.BasicAck)
    got = target.wait_get(destination)
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"one", "amq.fanout", "other")
    assert (row["src_exchange"], row["src_exchange_key"]) == ("amq.topic", "orders.*")
    assert (row["dest_exchange"], row["dest_exchange_key"]) == ("amq.fanout", "other")


def test_properties_and_headers(shovels: Shovels, queue: MakeQueue, name: Callable[[str], str]) -> None:
    source, destination, shovel = name("q"), name("r"), name("s")
    channel = queue(shovels.server, source)
    queue(shovels.server, destination)
    channel.publish("", source, b"one", Properties(app_id="mine", delivery_mode=1))
    channel.expect(m.BasicAck)
    shovels.set_within(
        shovel,
        source,
        destination,
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"delivery_mode": 2, "content_type": "text/plain"},
    )
    got = channel.wait_get(destination)
    properties = got.properties
    assert (properties.app_id, properties.delivery_mode, properties.content_type) == ("mine", 2, "text/plain")
    assert got.headers["x-shovelled-timestamp"].tag == "l"
    hops: Any = got.headers["x-shovelled"].value
    (hop,) = hops
    texts = {key: field.value for key, field in hop.value.items()}
    assert texts.pop("shovelled-by")
    assert texts == {
        "shovel-type": b"dynamic",
        "shovel-name": shovel.encode(),
        "shovel-vhost": b"/",
        "src-uri": b"amqp://",
        "dest-uri": b"amqp://",
        "src-queue": source.encode(),
        "dest-queue": destination.encode(),
    }


@pytest.mark.parametrize(("limit", "moved"), [("queue-length", 20), (7, 7)])
def test_a_shovel_deletes_itself(
    shovels: Shovels, queue: MakeQueue, name: Callable[[str], str], limit: str | int, moved: int
) -> None:
    source, destination, shovel = name("q"), name("r"), name("s")
    channel = queue(shovels.server, source, *BODIES)
    target = queue(shovels.server, destination)
    shovels.set_within(shovel, source, destination, src_delete_after=limit)
    wait_until(lambda: shovels.api.get(f"/parameters/shovel/%2F/{shovel}").status == 404, "it deletes itself")
    assert drain(target, destination, moved) == BODIES[:moved]
    wait_until(lambda: channel.declare(source, durable=True) == source and shovels.row(shovel) is None)
    assert drain(channel, source, len(BODIES) - moved) == BODIES[moved:]


@pytest.mark.parametrize(
    "changes",
    [
        {"src_uri": "amqp://guest:wrong@HOST"},
        {"dest_uri": "amqp://127.0.0.1:1"},
        {"dest_uri": "amqp://HOST/none"},
        {"dest_uri": "amqps://HOST"},
    ],
)
def test_a_shovel_that_cannot_connect_moves_nothing_and_says_no_password(
    shovels: Shovels, queue: MakeQueue, name: Callable[[str], str], changes: dict[str, str]
) -> None:
    server = shovels.server
    source, destination, shovel = name("q"), name("r"), name("s")
    channel = queue(server, source, b"one")
    target = queue(server, destination)
    keys = {"src_uri": "amqp://", "src_queue": source, "dest_uri": "amqp://", "dest_queue": destination}
    broken = {key: uri.replace("HOST", f"{server.host}:{server.port}") for key, uri in changes.items()}
    shovels.set(shovel, **(keys | broken), reconnect_delay=1)
    row = wait_until(lambda: shovels.row(shovel))
    assert row is not None
    assert row["state"] in ("starting", "terminated")
    assert "wrong" not in str(row)
    shovels.set(shovel, **keys)
    shovels.await_state(shovel, "running")
    assert drain(target, destination, 1) == [b"one"]
    assert channel.get(source) is None
