"""A queue takes messages from upstream while its consumers could take more than it has, and at no other time."""

import pytest

from node.amqp.field_table import Field, array, longstr
from node.amqp.methods import BasicAck, BasicCancel, BasicConsume, BasicQos, QueueDelete
from node.amqp.properties import Properties
from tests.kit.world import Received
from tests.node.federation.sites import Site, Sites


def pair(**upstream: object) -> tuple[Sites, Site, Site]:
    """Return two sites with a queue q each; that of `down` is federated with that of `up`."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    up.queue("q")
    down.queue("q")
    down.set_upstream("u", up, **upstream)
    down.set_policy("^q$", "u")
    sites.settle()
    return sites, up, down


def bodies(received: list[Received]) -> list[bytes]:
    """Return the bodies of the messages among what was received."""
    return [each.body for each in received if each.body]


def publish(site: Site, *messages: bytes, exchange: str = "", key: str = "q", **properties: object) -> None:
    """Publish to queue q."""
    site.client.publish(1, key, *messages, exchange=exchange, properties=Properties(**properties))  # type: ignore[arg-type]


def test_without_a_consumer_here_nothing_moves() -> None:
    """A link without a consumer here runs, and takes nothing."""
    sites, up, down = pair()
    publish(up, b"1", b"2")
    sites.settle()
    assert [each.status for each in down.statuses] == ["running"]
    assert (up.count("q"), down.count("q")) == (2, 0)
    assert up.world.queue("q").consumers.all == []


def test_consumer_here_gets_the_messages_of_both() -> None:
    """A consumer here gets the messages here, and then those upstream, with RabbitMQ's headers."""
    sites, up, down = pair()
    publish(up, b"there")
    publish(down, b"here")
    consumer = down.consume("q")
    sites.settle()
    found = [each for each in consumer.received() if each.body]
    assert bodies(found) == [b"here", b"there"]
    assert found[1].properties is not None
    headers = found[1].properties.headers
    assert headers is not None
    assert headers["x-original-exchange"] == longstr("")
    assert headers["x-original-routing-key"] == longstr("q")
    (entry,) = headers["x-received-from"].value  # type: ignore[misc, union-attr]
    assert [(key, each.value) for key, each in entry.value.items()] == [  # type: ignore[union-attr]
        ("uri", b"amqp://up"),
        ("queue", b"q"),
        ("redelivered", False),
        ("visit-count", 1),
    ]


def test_link_has_the_priority_of_a_link_and_its_tag() -> None:
    """Upstream the link is a consumer of priority -1 with a tag of its own, so that local ones go first."""
    sites, up, down = pair(consumer_tag="mine", prefetch_count=5)
    down.consume("q")
    sites.settle()
    (consumer,) = up.world.queue("q").consumers.all
    assert (consumer.priority, consumer.tag, consumer.prefetch) == (-1, "mine", 5)


def test_busy_consumer_leaves_messages_upstream() -> None:
    """While a consumer here can take no more, no more than one prefetch of messages is fetched."""
    sites, up, down = pair(prefetch_count=2)
    client = down.world.client()
    client.ask(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    publish(up, *(str(number).encode() for number in range(20)))
    sites.settle()
    assert up.count("q") >= 20 - 4
    seen = bodies(client.received())
    for tag in range(1, 21):
        client.send(1, BasicAck(delivery_tag=tag))
        sites.settle()
        seen += bodies(client.received())
    assert seen == [str(number).encode() for number in range(20)]
    assert (up.count("q"), down.count("q")) == (0, 0)


def test_cancelled_consumer_ends_the_link_s() -> None:
    """When the consumer here is gone, what comes upstream afterwards stays there but for one batch."""
    sites, up, down = pair(prefetch_count=1)
    client = down.consume("q")
    sites.settle()
    client.received()
    client.ask(1, BasicCancel(consumer_tag="c"))
    sites.settle()
    publish(up, b"1", b"2", b"3")
    sites.settle()
    assert up.count("q") >= 2
    assert up.world.queue("q").consumers.all == []


def test_consumer_of_low_priority_is_no_reason() -> None:
    """A consumer with a priority below 0, as a link from elsewhere has, makes no link run."""
    sites, up, down = pair()
    down.consume("q", arguments={"x-priority": Field("I", -1)})
    publish(up, b"1")
    sites.settle()
    assert up.count("q") == 1


def test_two_sites_that_are_each_other_s_upstream_lose_nothing() -> None:
    """With consumers at one site only, the messages of both go there, each once."""
    sites = Sites()
    one, two = sites.site("one"), sites.site("two")
    for here, there in ((one, two), (two, one)):
        here.queue("q")
        here.set_upstream("u", there)
        here.set_policy("^q$", "u")
    sites.settle()
    consumer = two.consume("q")
    publish(one, *(b"a%d" % number for number in range(50)))
    publish(two, *(b"b%d" % number for number in range(50)))
    sites.settle()
    expected = sorted([b"a%d" % number for number in range(50)] + [b"b%d" % number for number in range(50)])
    assert sorted(bodies(consumer.received())) == expected
    consumer.lose()
    other = one.consume("q")
    publish(two, b"back")
    sites.settle()
    assert bodies(other.received()) == [b"back"]


def test_visits_are_counted() -> None:
    """A message that passes a link again is counted there, and its first address is kept."""
    sites, up, down = pair()
    consumer = down.consume("q")
    own = {
        "uri": longstr("amqp://up"),
        "queue": longstr("q"),
        "redelivered": Field("t", False),
        "visit-count": Field("l", 3),
    }
    publish(up, b"m", headers={"x-received-from": array([Field("F", own)]), "CC": array([longstr("q2")])})
    sites.settle()
    (found,) = [each for each in consumer.received() if each.body]
    assert found.properties is not None
    headers = found.properties.headers
    assert headers is not None
    assert "CC" not in headers
    assert headers["x-original-cc"] == array([longstr("q2")])
    assert "x-original-exchange" not in headers
    (entry,) = headers["x-received-from"].value  # type: ignore[misc, union-attr]
    assert entry.value["visit-count"].value == 4  # type: ignore[index, call-overload]


def test_missing_queue_upstream_is_declared_alike() -> None:
    """A queue that is not there upstream is declared as it is here."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.queue("q", arguments={"x-max-length": Field("l", 7)})
    down.set_upstream("u", up, queue="other")
    down.set_policy("^q$", "u")
    sites.settle()
    record = up.world.broker.catalogue.queue("/", "other")
    assert record is not None
    assert record.durable
    assert record.arguments["x-max-length"].value == 7


def test_queue_of_a_link_is_not_federated() -> None:
    """The queue that an exchange's link has made is for that link, whatever policies match it."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.exchange("x")
    down.queue("q", "a", exchange="x")
    down.set_upstream("u", up)
    down.set_policy("^x$", "u")
    up.set_upstream("u", down)
    up.set_policy("", "u")
    sites.settle()
    assert all(life.link.key.of.name != "federation: x -> down" for life in up.links)


def test_upstream_without_consumer_priorities_is_told() -> None:
    """A broker that has no consumer priorities would give its messages away: the link says so and waits."""
    sites, up, down = pair()
    up.world.broker.settings.server_properties["capabilities"].value.clear()  # type: ignore[union-attr]
    (life,) = down.links
    life.restart()
    sites.settle()
    assert (life.status.status, life.status.error) == ("error", "upstream_lacks_consumer_priorities")


def test_deleted_queue_ends_its_link() -> None:
    """With the queue here its link goes, and the queue upstream stays as it is."""
    sites, up, down = pair()
    publish(up, b"m")
    down.client.ask(1, QueueDelete(queue="q"))
    sites.settle()
    assert list(down.links) == []
    assert up.count("q") == 1


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_cut_link_loses_nothing_but_without_acknowledgements(mode: str) -> None:
    """After a cut in the middle of a batch all messages are there, some perhaps twice, and none is missing."""
    sites, up, down = pair(ack_mode=mode, prefetch_count=10)
    consumer = down.consume("q")
    for number in range(100):
        publish(up, str(number).encode())
        if number % 30 == 10:
            up.cut_links()
            sites.settle()
            sites.advance(6)
    sites.advance(60)
    found = bodies(consumer.received())
    assert set(found) == {str(number).encode() for number in range(100)}
