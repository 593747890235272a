"""One shovel between two brokers of the test's process: what it moves, how it fails, and what it says."""

import pytest

from node.amqp import methods as m
from node.amqp.field_table import Field, longstr
from node.amqp.frames import content_frames, method_frame
from node.amqp.properties import Properties, content_header
from node.shovels.failure import RESTART
from node.shovels.session import REFUSED_PAUSE_S
from tests.kit.closing_broker import TEXT, closes_when_it_opens
from tests.kit.shovel_world import ShovelScene

BODIES = [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_move_in_their_order(mode: str) -> None:
    scene = ShovelScene()
    scene.fill(*BODIES)
    life = scene.shovel(ack_mode=mode)
    assert life.status.state == "running"
    scene.fill(b"later")
    scene.settle()
    assert scene.waiting("r", "b") == [*BODIES, b"later"]
    assert scene.counts("q", "a") == (0, 0)
    assert life.counters.forwarded == 6


def test_a_running_shovel_tells_both_ends_without_passwords() -> None:
    life = ShovelScene().shovel(src_uri="amqp://guest:guest@a", dest_uri=["amqp://guest:guest@b/%2f"])
    assert dict(life.status.ends) == {
        "src_uri": "amqp://a",
        "src_protocol": "amqp091",
        "dest_protocol": "amqp091",
        "dest_uri": "amqp://b/%2f",
        "src_queue": "q",
        "dest_queue": "r",
    }


def test_what_the_destination_has_not_confirmed_stays_at_the_source() -> None:
    scene = ShovelScene()
    scene.fill(*BODIES)
    scene.shovel()
    scene.waiting("r", "b")
    destination = scene.links[-1]
    destination.is_over = True  # nothing passes any more
    scene.fill(b"new")
    scene.settle()
    assert scene.counts("q", "a") == (0, 1)
    source = scene.links[-2]
    source.abort()
    scene.settle()
    assert scene.waiting("q", "a") == [b"new"]


def test_a_queue_is_declared_durable_unless_it_is_there() -> None:
    scene = ShovelScene()
    scene.fill(queue="q", durable=False)
    life = scene.shovel()
    assert life.status.state == "running"
    assert scene.worlds["b"].queue("r").record.durable
    assert not scene.worlds["a"].queue("q").record.durable


@pytest.mark.parametrize("side", ["src", "dest"])
def test_a_predeclared_queue_must_be_there(side: str) -> None:
    scene = ShovelScene()
    life = scene.shovel(**{f"{side}_predeclared": True})
    assert life.status.state == "terminated"
    assert life.status.reason == RESTART
    assert "404, reason: NOT_FOUND - no queue" in life.status.error


def test_an_exchange_at_each_end() -> None:
    scene = ShovelScene()
    destination = scene.worlds["b"].client()
    destination.ask(1, m.QueueDeclare(queue="t"))
    destination.ask(1, m.QueueBind(queue="t", exchange="amq.topic", routing_key="k.#"))
    life = scene.shovel(src_exchange="amq.topic", src_exchange_key="k.*", dest_exchange="amq.topic")
    assert life.status.state == "running"
    publisher = scene.worlds["a"].client()
    publisher.publish(1, "k.1", b"one", exchange="amq.topic")
    publisher.publish(1, "other", b"no", exchange="amq.topic")
    scene.settle()
    assert scene.waiting("t", "b") == [b"one"]
    assert dict(life.status.ends)["src_exchange_key"] == "k.*"


def test_a_key_at_the_destination_replaces_the_messages_own() -> None:
    scene = ShovelScene()
    scene.fill(queue="r", world="b")
    scene.fill(*BODIES)
    scene.shovel(dest_exchange="", dest_exchange_key="r")
    assert scene.waiting("r", "b") == BODIES


@pytest.mark.parametrize(("limit", "moved"), [("queue-length", 5), (3, 3), (0, 0)])
def test_a_shovel_deletes_itself_after_its_work(limit: str | int, moved: int) -> None:
    scene = ShovelScene()
    scene.fill(*BODIES)
    life = scene.shovel(src_delete_after=limit)
    assert scene.completions == [life.definition]
    assert scene.waiting("r", "b") == BODIES[:moved]
    assert scene.waiting("q", "a") == BODIES[moved:]
    assert all(link.is_over for link in scene.links)


def test_headers_say_where_a_message_has_been() -> None:
    scene = ShovelScene()
    scene.fill(queue="q")
    publisher = scene.worlds["a"].client()
    earlier = Properties(
        headers={"x-shovelled": Field("A", [Field("F", {"shovelled-by": longstr("before")})])}
    )
    publisher.publish(1, "q", b"1", properties=Properties(app_id="me"))
    publisher.publish(1, "q", b"2", properties=earlier)
    scene.shovel(
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"delivery_mode": 2},
    )
    reader = scene.worlds["b"].client()
    reader.send(1, m.BasicConsume(queue="r", no_ack=True))
    _, first, second = reader.received()
    assert first.properties is not None
    assert second.properties is not None
    assert first.properties.app_id == "me"
    assert first.properties.delivery_mode == 2
    headers = first.properties.headers
    assert headers is not None
    assert second.properties.headers is not None
    assert headers["x-shovelled-timestamp"] == Field("l", 1_700_000_000)
    (hop,) = headers["x-shovelled"].value  # type: ignore[misc, union-attr]
    assert {name: field.value.decode() for name, field in hop.value.items()} == {
        "shovelled-by": "here",
        "shovel-type": "dynamic",
        "shovel-name": "s",
        "shovel-vhost": "/",
        "src-uri": "amqp://a",
        "dest-uri": "amqp://b",
        "src-queue": "q",
        "dest-queue": "r",
    }
    hops = second.properties.headers["x-shovelled"].value
    assert isinstance(hops, list)
    assert hops[1] == Field("F", {"shovelled-by": longstr("before")})


def test_an_unknown_host_is_tried_again_after_growing_waits() -> None:
    scene = ShovelScene()
    life = scene.shovel(dest_uri="amqp://nowhere", reconnect_delay=2)
    assert life.status.state == "terminated"
    assert life.status.reason == RESTART
    assert life.status.error == "destination: connection to target host was refused (ECONNREFUSED)"
    for _ in range(4):
        scene.advance(scene.waits[-1])
    assert scene.waits == [2, 4, 8, 16, 30]
    assert not [link for link in scene.links if link.uri.host == "a" and not link.is_over]


def test_all_uris_are_tried() -> None:
    scene = ShovelScene()
    life = scene.shovel(src_uri=["amqp://none", "amqp://nobody", "amqp://a"])
    assert life.status.state == "running"
    assert dict(life.status.ends)["src_uri"] == "amqp://a"


def test_a_wrong_password_is_told_in_the_brokers_words() -> None:
    scene = ShovelScene()
    life = scene.shovel(src_uri="amqp://guest:wrong@a")
    assert life.status.state == "terminated"
    assert "ACCESS_REFUSED - Login was refused" in life.status.error
    assert "wrong" not in str(scene.lines)


def test_a_vhost_that_is_not_there_is_told() -> None:
    life = ShovelScene().shovel(dest_uri="amqp://b/none")
    assert "access to target virtual host was refused" in life.status.error


def test_without_a_reconnect_delay_a_shovel_is_not_restarted() -> None:
    scene = ShovelScene()
    life = scene.shovel(src_uri="amqp://none", reconnect_delay=0)
    scene.advance(1000)
    assert life.status.state == "terminated"
    assert scene.waits == []
    scene.worlds["none"] = scene.worlds["a"]
    life.restart()
    scene.settle()
    assert life.status.state == "running"


@pytest.mark.parametrize("side", [-1, -2])
def test_a_lost_connection_is_made_again_and_nothing_is_lost(side: int) -> None:
    scene = ShovelScene()
    scene.fill(*BODIES)
    life = scene.shovel()
    peer = scene.links[side].peer
    assert peer is not None
    peer.lose()
    scene.settle()
    assert life.status.state == "terminated"
    assert "connection failed: socket_closed_unexpectedly" in life.status.error
    scene.fill(b"later")
    scene.advance(5)
    assert life.status.state == "running"
    assert life.status.error == ""
    assert scene.waiting("r", "b") == [*BODIES, b"later"]


def test_a_queue_that_is_deleted_ends_the_attempt() -> None:
    scene = ShovelScene()
    life = scene.shovel()
    scene.worlds["a"].client().ask(1, m.QueueDelete(queue="q"))
    scene.settle()
    assert life.status.error == "received a 'basic.cancel' from the server"
    scene.advance(5)
    assert life.status.state == "running"


def test_a_destination_that_is_gone_is_told() -> None:
    scene = ShovelScene()
    scene.fill(*BODIES)
    life = scene.shovel(dest_exchange="none")
    assert life.status.state == "terminated"
    assert "404, reason: NOT_FOUND - no exchange 'none' in vhost '/'" in life.status.error
    assert scene.waiting("q", "a") == BODIES


def test_a_refused_message_goes_back_and_the_shovel_rests() -> None:
    scene = ShovelScene()
    arguments = {"x-max-length": Field("l", 1), "x-overflow": longstr("reject-publish")}
    scene.worlds["b"].client().ask(1, m.QueueDeclare(queue="r", arguments=arguments))
    scene.fill(*BODIES)
    life = scene.shovel()
    refused = life.counters.refused
    assert refused >= 4
    assert sum(scene.counts("q", "a")) == 4
    scene.settle()
    assert life.counters.refused == refused
    assert scene.waiting("r", "b") == [b"0"]
    for _ in range(10):
        scene.advance(REFUSED_PAUSE_S)
        scene.waiting("r", "b")
    assert sum(scene.counts("q", "a")) == 0


def test_a_blocked_destination_holds_the_source_back() -> None:
    scene = ShovelScene()
    life = scene.shovel()
    source, destination = scene.links
    destination.core.receive_data(method_frame(0, m.ConnectionBlocked("low on disk")), 0.0)
    scene.settle()
    assert source.is_paused
    scene.fill(*BODIES)
    scene.settle()
    assert life.counters.forwarded == 0
    destination.core.receive_data(method_frame(0, m.ConnectionUnblocked()), 0.0)
    scene.settle()
    assert not source.is_paused
    assert scene.waiting("r", "b") == BODIES


def test_a_socket_that_takes_nothing_holds_the_source_back() -> None:
    scene = ShovelScene()
    scene.shovel()
    source, destination = scene.links
    destination.is_writable = False
    scene.fill(*BODIES)
    scene.settle()
    assert source.is_paused
    destination.set_writable(True)
    scene.settle()
    assert not source.is_paused
    assert scene.waiting("r", "b") == BODIES


def test_a_shovel_that_stops_waits_for_what_is_under_way() -> None:
    scene = ShovelScene()
    life = scene.shovel()
    source, destination = scene.links
    scene.fill(*BODIES)
    source.move()
    life.stop()
    assert scene.ended == []
    scene.fill(b"stays")
    scene.settle()
    assert scene.ended == [life]
    assert scene.waiting("r", "b") == BODIES
    assert scene.waiting("q", "a") == [b"stays"]
    assert destination.is_over
    assert source.is_over


def test_a_shovel_whose_destination_is_silent_stops_in_time() -> None:
    scene = ShovelScene()
    life = scene.shovel()
    scene.links[1].is_over = True
    scene.fill(b"one")
    scene.settle()
    life.stop()
    scene.advance(1.0)
    assert scene.ended == [life]
    assert scene.waiting("q", "a") == [b"one"]


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_broker_that_closes_with_the_bytes_that_open_is_tried_again(host: str) -> None:
    """A broker that stops may send `connection.close` right behind `connection.open-ok`."""
    scene = ShovelScene()
    scene.fill(*BODIES)
    with closes_when_it_opens(scene.worlds[host]):
        life = scene.shovel()
        assert life.status.state == "terminated"
        assert TEXT in life.status.error
    scene.advance(scene.waits[-1])
    assert life.status.state == "running"
    assert scene.waiting("r", "b") == BODIES


def test_a_source_that_numbers_deliveries_otherwise_is_a_failure() -> None:
    """Acknowledgements would go to other messages than those that were confirmed."""
    scene = ShovelScene()
    life = scene.shovel()
    source = next(link for link in scene.links if link.uri.host == "a")
    content = content_frames(1, content_header(1, Properties()), b"m", 4096)
    deliver = m.BasicDeliver(
        consumer_tag="c", delivery_tag=7, redelivered=False, exchange="", routing_key="q"
    )
    source.core.receive_data(method_frame(1, deliver) + content, 0.0)
    scene.settle()
    assert (life.status.state, life.status.error) == (
        "terminated",
        "UNEXPECTED_FRAME - delivery tag 7 was not expected",
    )
    assert scene.waiting("r", "b") == []
