"""Faults of a shovel's ends and messages: the state says what is wrong, waits are bounded, and nothing is lost."""

import pytest

from node.amqp import methods as m
from node.amqp.field_table import Field, longstr
from node.amqp.frames import content_frames, method_frame
from node.amqp.properties import Properties, content_header
from node.amqp_client.contents import with_properties
from node.catalogue.commands import PutUser, SetPermission
from node.catalogue.passwords import SHA256, hash_password
from node.client.settings import BrokerSettings
from node.shovels.definition import ShovelKey, read_definition
from node.shovels.headers import HOPS_MAX
from node.shovels.life import ShovelLife
from tests.kit.shovel_world import ShovelScene
from tests.kit.world import Received, World

HOUR_S = 3600.0


def _user(scene: ShovelScene, world: str, configure: str, write: str, read: str) -> str:
    """Make a user with these permissions, and return the URI with which it connects."""
    broker = scene.worlds[world]
    broker.submit(PutUser("u", hash_password("u", b"salt"), SHA256))
    broker.submit(SetPermission("/", "u", configure, write, read))
    return f"amqp://u:u@{world}"


@pytest.mark.parametrize(
    "reason",
    [
        "tls_alert: self-signed certificate",
        "tls_alert: Hostname mismatch, certificate is not valid for 'a'.",
        "tls_alert: certificate has expired",
    ],
)
@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_certificate_that_does_not_fit_is_told(side: str, reason: str) -> None:
    """`tests/node/io/test_amqp_client.py` has the handshakes."""
    scene = ShovelScene()
    scene.fill(b"m")
    host = {"source": "a", "destination": "b"}[side]
    scene.faults[host] = reason
    life = scene.shovel()
    assert (life.status.state, life.status.error) == ("terminated", f"{side}: {reason}")
    del scene.faults[host]
    scene.advance(scene.waits[-1])
    assert life.status.state == "running"
    assert scene.waiting("r", "b") == [b"m"]


@pytest.mark.parametrize(
    ("permissions", "what"),
    [
        ((".*", ".*", "^$"), "queue 'q' in vhost '/' refused for user 'u'"),
        (("^$", ".*", ".*"), ""),
    ],
)
def test_a_permission_that_is_missing_at_the_source(permissions: tuple[str, str, str], what: str) -> None:
    """A queue that is there needs the right to read alone."""
    scene = ShovelScene()
    scene.fill(b"m")
    life = scene.shovel(src_uri=_user(scene, "a", *permissions))
    if not what:
        assert life.status.state == "running"
        return
    assert (
        life.status.error == f"source channel closed with code 403, reason: ACCESS_REFUSED - access to {what}"
    )
    assert scene.waiting("q", "a") == [b"m"]


def test_a_permission_that_is_missing_at_the_destination() -> None:
    """The right to write is looked at when the first message comes: it goes back, and the waits grow."""
    scene = ShovelScene()
    scene.fill(queue="r", world="b")
    scene.fill(b"m")
    life = scene.shovel(dest_uri=_user(scene, "b", ".*", "^$", ".*"))
    assert life.status.state == "terminated"
    assert life.status.error == (
        "destination channel closed with code 403, reason: ACCESS_REFUSED - access to exchange 'amq.default' in vhost "
        "'/' refused for user 'u'"
    )
    for _ in range(4):
        scene.advance(scene.waits[-1])
    assert scene.waits == [5, 10, 20, 30, 30]
    scene.worlds["b"].submit(SetPermission("/", "u", ".*", ".*", ".*"))
    scene.advance(30)
    assert life.status.state == "running"
    assert scene.waiting("r", "b") == [b"m"]


def test_a_queue_of_other_arguments_stays_as_it_is() -> None:
    """As with RabbitMQ the arguments of the parameter are those of a queue that is declared."""
    scene = ShovelScene()
    there = {"x-max-length": Field("l", 7)}
    scene.worlds["b"].client().ask(1, m.QueueDeclare(queue="r", durable=True, arguments=there))
    scene.fill(b"m")
    life = scene.shovel(dest_queue_args={"x-max-length": 9, "x-overflow": "reject-publish"})
    assert life.status.state == "running"
    assert scene.worlds["b"].queue("r").record.arguments == there
    assert scene.waiting("r", "b") == [b"m"]


def test_arguments_that_no_queue_can_have_are_told() -> None:
    life = ShovelScene().shovel(dest_queue_args={"x-message-ttl": -1})
    assert life.status.state == "terminated"
    assert life.status.error.startswith(
        "destination channel closed with code 406, reason: PRECONDITION_FAILED"
    )


def test_a_message_that_is_too_large_for_the_destination() -> None:
    """The message stays at the source, with growing waits, and those after it come over once it is gone."""
    scene = ShovelScene()
    scene.worlds["b"] = World(BrokerSettings(message_max_bytes=10))
    scene.fill(b"x" * 11)
    life = scene.shovel()
    assert life.status.state == "terminated"
    assert life.status.error == (
        "destination channel closed with code 406, reason: PRECONDITION_FAILED - message size 11 is larger than "
        "configured max size 10"
    )
    scene.advance(HOUR_S)
    assert life.counters.failures <= HOUR_S / 30 + 5
    assert sum(scene.counts("q", "a")) == 1
    scene.worlds["a"].client().ask(1, m.QueuePurge(queue="q"))
    scene.fill(b"small")
    scene.advance(30)
    assert life.status.state == "running"
    assert scene.waiting("r", "b") == [b"small"]
    peer = scene.links[-1].peer
    assert peer is not None
    peer.lose()
    scene.settle()
    assert scene.waits[-1] == 5  # an attempt that moved something begins the waits anew


def test_an_end_that_vanishes_for_hours() -> None:
    """Six hours cost some 720 attempts, one each half a minute, and it is found again within that time."""
    scene = ShovelScene()
    life = scene.shovel(reconnect_delay=0.1)
    scene.faults["b"] = "etimedout"
    peer = scene.links[-1].peer
    assert peer is not None
    peer.lose()
    scene.settle()
    dialled = len(scene.links)
    scene.fill(b"kept")
    scene.advance(6 * HOUR_S)
    assert life.status.error == "destination: connection to target host timed out (ETIMEDOUT)"
    assert 6 * 120 <= life.counters.failures <= 6 * 120 + 20
    assert len(scene.links) - dialled == 2 * (life.counters.failures - 1)
    assert [link.uri.host for link in scene.links if not link.is_over] == []
    assert max(scene.waits) == 30
    assert scene.counts("q", "a") == (1, 0)
    scene.faults.clear()
    scene.advance(30)
    assert life.status.state == "running"
    assert scene.waiting("r", "b") == [b"kept"]


def test_a_loop_of_shovels_loses_and_doubles_nothing() -> None:
    """A message goes round for ever, as with RabbitMQ, and its header has a bound."""
    scene = ShovelScene()
    scene.fill(b"round")
    there = {"src-uri": "amqp://a", "src-queue": "q", "dest-uri": "amqp://b", "dest-queue": "r"}
    back = {"src-uri": "amqp://b", "src-queue": "r", "dest-uri": "amqp://a", "dest-queue": "q"}
    lives = []
    for name, value in (("there", there), ("back", back)):
        definition = read_definition(ShovelKey("/", name), {**value, "dest-add-forward-headers": True})
        lives.append(ShovelLife(definition, scene, scene.ended.append))
        lives[-1].start()
    for _ in range(6 * HOPS_MAX + 100):
        for link in list(scene.links):
            link.move()
    assert [life.status.state for life in lives] == ["running", "running"]
    assert all(life.counters.forwarded > HOPS_MAX for life in lives)
    for life in lives:
        life.stop()
    scene.settle()
    (found,) = [
        received for world, queue in (("a", "q"), ("b", "r")) for received in _got(scene.worlds[world], queue)
    ]
    assert found.properties is not None
    assert found.properties.headers is not None
    hops = found.properties.headers["x-shovelled"].value
    assert isinstance(hops, list)
    assert len(hops) == HOPS_MAX
    names = [hop.value["shovel-name"] for hop in hops if isinstance(hop.value, dict)]
    assert set(names) == {longstr("there"), longstr("back")}
    assert names[0] != names[1]  # the last hops are kept, in turn


def _got(world: World, queue: str) -> list[Received]:
    client = world.client()
    client.send(1, m.BasicGet(queue=queue, no_ack=True))
    (got,) = client.received()
    return [got] if isinstance(got.method, m.BasicGetOk) else []


def test_a_clock_that_is_set_back_or_ahead_changes_nothing_but_what_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waits go by the monotonic clock."""
    scene = ShovelScene()
    scene.faults["b"] = "econnrefused"
    life = scene.shovel()
    shifts = iter([-86_400.0, 86_400.0 * 365, -1.0])
    for shift in shifts:
        monkeypatch.setattr(ShovelScene, "wall_s", 1_700_000_000.0 + shift)
        scene.advance(scene.waits[-1])
        assert life.status.since_s == 1_700_000_000.0 + shift
    assert scene.waits == [5, 10, 20, 30]
    del scene.faults["b"]
    scene.advance(30)
    assert life.status.state == "running"


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish"])
def test_a_destination_queue_that_is_deleted_swallows_nothing(mode: str) -> None:
    """The broker confirms a message that reaches no queue: the shovel declares the queue anew instead."""
    scene = ShovelScene()
    life = scene.shovel(ack_mode=mode)
    scene.worlds["b"].client().ask(1, m.QueueDelete(queue="r"))
    scene.fill(b"1", b"2")
    scene.settle()
    assert life.status.state == "terminated"
    assert life.status.error == ("destination returned a message with code 312, reason: NO_ROUTE, key: 'r'")
    if mode == "on-confirm":
        assert scene.counts("q", "a") == (2, 0)
    scene.fill(b"3")
    scene.advance(scene.waits[-1])
    assert life.status.state == "running"
    expected = [b"1", b"2", b"3"] if mode == "on-confirm" else [b"3"]
    assert scene.waiting("r", "b") == expected


def test_a_destination_exchange_may_have_no_queue_for_a_message() -> None:
    """A message to an exchange without bindings is dropped, as it is for any publisher."""
    scene = ShovelScene()
    scene.fill(b"m")
    life = scene.shovel(dest_exchange="amq.fanout")
    assert life.status.state == "running"
    assert scene.counts("q", "a") == (0, 0)


@pytest.mark.parametrize(("key", "side"), [("src_uri", "source"), ("dest_uri", "destination")])
def test_a_limit_of_channels_that_is_too_low_is_told(key: str, side: str) -> None:
    """A shovel asks for its queues on a second channel."""
    scene = ShovelScene()
    host = "a" if side == "source" else "b"
    life = scene.shovel(**{key: f"amqp://{host}?channel_max=1"})
    assert life.status.state == "terminated"
    assert life.status.error == f"{side} connection has too few channels: channel_max is 1"
    assert scene.shovel(**{key: f"amqp://{host}?channel_max=2&frame_max=1"}).status.state == "running"


def test_a_message_with_malformed_properties_makes_the_waits_grow() -> None:
    """A message that cannot be forwarded is no work done, though the shovel ran."""
    scene = ShovelScene()
    life = scene.shovel(dest_add_forward_headers=True)
    content = content_frames(1, content_header(1, Properties()), b"m", 4096)
    deliver = m.BasicDeliver(
        consumer_tag="c", delivery_tag=1, redelivered=False, exchange="", routing_key="q"
    )
    broken = method_frame(1, deliver) + with_properties(content, b"\x80\x00")
    for wait_s in (5.0, 10.0, 20.0):
        assert life.status.state == "running"
        source = [link for link in scene.links if link.uri.host == "a"][-1]
        source.core.receive_data(broken, scene.now)
        scene.settle()
        assert (life.status.state, life.status.error) == (
            "terminated",
            "INTERNAL_ERROR - malformed properties",
        )
        assert scene.waits[-1] == wait_s
        scene.advance(wait_s)
