"""An exchange gets from upstream what its bindings ask for, whatever happens to the link in between."""

import pytest

from node.amqp.field_table import Field
from node.amqp.methods import BasicConsume, ExchangeDelete, QueueDelete, QueueUnbind
from node.amqp.properties import Properties
from node.catalogue.commands import ClearParameter, ClearPolicy, DeleteExchange
from node.federation.hops import exchange_entry, prepended
from tests.kit.world import Received
from tests.node.federation.sites import Site, Sites


def pair(**upstream: object) -> tuple[Sites, Site, Site]:
    """Return two sites: exchange x of `down` is federated with that of `up`, and queue q here is bound with `a.#`."""
    sites = Sites()
    up, down = sites.site("up"), sites.site("down")
    down.exchange("x")
    down.queue("q", "a.#", exchange="x")
    down.set_upstream("u", up, **upstream)
    down.set_policy("^x$", "u")
    sites.settle()
    return sites, up, down


def messages(site: Site, queue: str = "q") -> list[Received]:
    """Return all messages that are in a queue, and take them."""
    client = site.consume(queue)
    found = [each for each in client.received() if each.body]
    client.lose()
    return found


def publish(site: Site, key: str, body: bytes, **properties: object) -> None:
    """Publish to exchange x."""
    site.client.publish(1, key, body, exchange="x", properties=Properties(**properties))  # type: ignore[arg-type]


def entries(message: Received) -> list[dict[str, Field]]:
    """Return the entries of `x-received-from`."""
    assert message.properties is not None
    assert message.properties.headers is not None
    value = message.properties.headers["x-received-from"].value
    assert isinstance(value, list)
    return [each.value for each in value if isinstance(each.value, dict)]


def test_link_declares_what_it_needs_upstream() -> None:
    """The exchange, a durable queue with its purpose, and the internal exchange have RabbitMQ's names and arguments."""
    _, up, down = pair(expires=1000, message_ttl=2000)
    catalogue = up.world.broker.catalogue
    assert [each.status for each in down.statuses] == ["running"]
    exchange = catalogue.exchange("/", "x")
    assert exchange is not None
    assert (exchange.type, exchange.durable) == ("topic", True)
    queue = catalogue.queue("/", "federation: x -> down")
    assert queue is not None
    assert queue.durable
    assert {key: each.value for key, each in queue.arguments.items()} == {
        "x-expires": 1000,
        "x-message-ttl": 2000,
        "x-internal-purpose": b"federation",
    }
    internal = catalogue.exchange("/", "federation: x -> down A")
    assert internal is not None
    assert (internal.type, internal.internal, internal.auto_delete) == ("x-federation-upstream", True, True)
    assert {key: (each.tag, each.value) for key, each in internal.arguments.items()} == {
        "x-max-hops": ("l", 1),
        "x-downstream-name": ("S", b"down"),
        "x-downstream-vhost": ("S", b"/"),
        "x-internal-purpose": ("S", b"federation"),
    }
    (binding,) = catalogue.bindings_from("/", "x")
    assert binding.routing_key == "a.#"
    (entry,) = binding.arguments["x-bound-from"].value  # type: ignore[misc, union-attr]
    assert {key: (each.tag, each.value) for key, each in entry.value.items()} == {
        "cluster-name": ("S", b"down"),
        "vhost": ("S", b"/"),
        "exchange": ("S", b"/:x A"),
        "hops": ("s", 1),
    }


def test_message_comes_with_its_way() -> None:
    """A message that matches a binding here comes, with an entry of RabbitMQ's fields; another one does not."""
    sites, up, down = pair()
    publish(up, "a.b", b"wanted", content_type="text/plain", headers={"h": Field("S", b"v")})
    publish(up, "b", b"unwanted")
    sites.settle()
    (message,) = messages(down)
    assert message.body == b"wanted"
    assert message.properties is not None
    assert message.properties.content_type == "text/plain"
    assert message.properties.headers is not None
    assert message.properties.headers["h"] == Field("S", b"v")
    assert [[(key, each.value) for key, each in entry.items()] for entry in entries(message)] == [
        [
            ("uri", b"amqp://up"),
            ("exchange", b"x"),
            ("redelivered", False),
            ("cluster-name", b"up"),
            ("vhost", b"/"),
        ]
    ]
    assert up.count("federation: x -> down") == 0


def test_one_that_has_come_too_far_is_left_out_of_a_run() -> None:
    """Messages of one read that differ in where they have been part ways upstream; the others keep their order."""
    sites, up, down = pair()
    router = up.world.broker.vhosts["/"].router
    assert not router.varies("x")
    assert set(router.headers_asked("x")) == {b"x-received-from"}
    for number in range(20):
        way = exchange_entry("amqp://far", "x", "far", "/", redelivered=False)
        headers = prepended(None, "x-received-from", way) if number % 5 == 0 else None
        publish(up, "a", str(number).encode(), headers=headers)
    sites.settle()
    assert [each.body for each in messages(down)] == [str(n).encode() for n in range(20) if n % 5]
    assert up.count("federation: x -> down") == 0


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_each_mode_moves_messages_and_leaves_none(mode: str) -> None:
    """In each mode of acknowledgement all messages come once and in order, and none stays upstream."""
    sites, up, down = pair(ack_mode=mode, prefetch_count=3)
    for number in range(20):
        publish(up, "a", str(number).encode())
    sites.settle()
    assert [each.body for each in messages(down)] == [str(number).encode() for number in range(20)]
    assert up.count("federation: x -> down") == 0
    assert up.world.queue("federation: x -> down").unacked_count == 0


def test_user_id_is_cleared_unless_it_is_trusted() -> None:
    """The property `user_id` is kept for an upstream that is trusted, and for no other."""
    for trust, expected in ((False, None), (True, "guest")):
        sites, up, down = pair(trust_user_id=trust)
        publish(up, "a", b"m", user_id="guest", message_id="1")
        sites.settle()
        (message,) = messages(down)
        assert message.properties is not None
        assert (message.properties.user_id, message.properties.message_id) == (expected, "1")


def test_bindings_here_follow_upstream() -> None:
    """A binding here is made upstream with the first of its key, and removed with the last."""
    sites, up, down = pair()
    catalogue = up.world.broker.catalogue

    def keys() -> list[str]:
        sites.settle()
        return sorted(each.routing_key for each in catalogue.bindings_from("/", "x"))

    down.queue("r", "a.#", "new", exchange="x")
    assert keys() == ["a.#", "new"]
    down.client.ask(1, QueueUnbind(queue="q", exchange="x", routing_key="a.#"))
    assert keys() == ["a.#", "new"]
    down.client.ask(1, QueueDelete(queue="r"))
    assert keys() == []


def test_what_was_unbound_without_a_link_is_unbound_later() -> None:
    """After a cut the bindings upstream are those that there are here now, on an internal exchange of another name."""
    sites, up, down = pair()
    up.is_cut = True
    up.cut_links()
    sites.settle()
    down.queue("q", "c", exchange="x")
    down.client.ask(1, QueueUnbind(queue="q", exchange="x", routing_key="a.#"))
    publish(up, "a", b"bound when it came")
    up.is_cut = False
    sites.advance(10)
    catalogue = up.world.broker.catalogue
    assert [each.routing_key for each in catalogue.bindings_from("/", "x")] == ["c"]
    assert catalogue.exchange("/", "federation: x -> down A") is None
    assert catalogue.exchange("/", "federation: x -> down B") is not None
    sites.settle()
    assert down.count("q") == 0  # nothing here asks for it any more


def test_messages_wait_upstream_while_there_is_no_link() -> None:
    """Messages that are published during a cut come when the link is back."""
    sites, up, down = pair()
    up.is_cut = True
    up.cut_links()
    sites.settle()
    (status,) = down.statuses
    assert status.status not in ("starting", "running")
    for number in range(5):
        publish(up, "a", str(number).encode())
    sites.advance(3)
    assert down.count("q") == 0
    up.is_cut = False
    sites.advance(30)
    assert [each.status for each in down.statuses] == ["running"]
    assert [each.body for each in messages(down)] == [str(number).encode() for number in range(5)]


def test_upstream_that_is_gone_for_hours_costs_few_attempts() -> None:
    """The waits between attempts grow to half a minute, and the state says what is wrong."""
    sites = Sites()
    down = sites.site("down")
    up = sites.site("up")
    up.is_cut = True
    down.exchange("x")
    down.set_upstream("u", up)
    down.set_policy("x", "u")
    sites.advance(3600)
    (life,) = down.links
    assert life.status.status == "error"
    assert life.status.error == "econnrefused"
    assert 100 < life.counters.failures < 200
    assert down.lines[0] == (
        "Federation exchange 'x' in vhost '/' did not connect to exchange 'x' in vhost '/' on amqp://up. "
        "Reason: econnrefused"
    )
    up.is_cut = False
    sites.advance(60)
    assert life.status.status == "running"


def test_cycle_of_two_ends() -> None:
    """Two exchanges that are each other's upstream pass each message once."""
    sites = Sites()
    one, two = sites.site("one"), sites.site("two")
    for here, there in ((one, two), (two, one)):
        here.exchange("x", "fanout")
        here.queue("q", "", exchange="x")
        here.set_upstream("u", there, max_hops=5)
        here.set_policy("^x$", "u")
    sites.settle()
    publish(one, "", b"from one")
    publish(two, "", b"from two")
    sites.settle()
    for site in (one, two):
        assert sorted(each.body for each in messages(site)) == [b"from one", b"from two"]


def ring(max_hops: int) -> tuple[Sites, list[Site]]:
    """Return four sites, of which each is the upstream of the next one."""
    sites = Sites()
    ring_ = [sites.site(name) for name in ("a", "b", "c", "d")]
    for here, there in zip(ring_, ring_[-1:] + ring_[:-1], strict=True):
        here.exchange("x", "fanout")
        here.queue("q", "", exchange="x")
        here.set_upstream("u", there, max_hops=max_hops)
        here.set_policy("^x$", "u")
        sites.settle()
    return sites, ring_


@pytest.mark.parametrize(("max_hops", "reached"), [(1, 2), (2, 3), (3, 4), (9, 4)])
def test_max_hops_bounds_the_way(max_hops: int, reached: int) -> None:
    """A message passes at most so many links, and comes to no site twice."""
    sites, ring_ = ring(max_hops)
    publish(ring_[0], "", b"m")
    sites.settle()
    found = [messages(site) for site in ring_]
    assert [len(each) for each in found] == [1] * reached + [0] * (4 - reached)
    if max_hops == 3:
        assert [bytes(each["cluster-name"].value) for each in entries(found[3][0])] == [b"c", b"b", b"a"]  # type: ignore[arg-type]


def test_upstream_without_the_exchange_type_gets_a_fanout() -> None:
    """A broker without the plug-in closes the connection for its type: the next one asks for a fanout."""
    sites = Sites()
    up, down = sites.site("up", has_plugin=False), sites.site("down")
    down.exchange("x")
    down.queue("q", "a", exchange="x")
    down.set_upstream("u", up)
    down.set_policy("^x$", "u")
    sites.advance(1)
    internal = up.world.broker.catalogue.exchange("/", "federation: x -> down A")
    assert internal is not None
    assert internal.type == "fanout"
    publish(up, "a", b"m")
    sites.settle()
    assert [each.body for each in messages(down)] == [b"m"]


@pytest.mark.parametrize("mode", ["default", "never"])
def test_removed_link_deletes_what_it_made(mode: str) -> None:
    """Without the policy the queue and the internal exchange upstream go, unless they are to stay."""
    sites, up, down = pair(resource_cleanup_mode=mode)
    down.world.submit(ClearPolicy("/", "fed"))
    sites.settle()
    catalogue = up.world.broker.catalogue
    assert list(down.links) == []
    assert down.links.is_idle
    assert (catalogue.queue("/", "federation: x -> down") is None) is (mode == "default")
    assert (catalogue.exchange("/", "federation: x -> down A") is None) is (mode == "default")
    assert catalogue.exchange("/", "x") is not None


def test_changed_upstream_keeps_the_messages() -> None:
    """A key that changes nothing upstream does not delete the queue there; one of the queue's arguments does."""
    sites, up, down = pair()
    down.set_upstream("u", up, prefetch_count=7)
    sites.settle()
    queue = up.world.broker.catalogue.queue("/", "federation: x -> down")
    assert queue is not None
    assert up.world.queue(queue.name).consumers.all[0].prefetch == 7
    down.set_upstream("u", up, expires=9000)
    sites.settle()
    later = up.world.broker.catalogue.queue("/", "federation: x -> down")
    assert later is not None
    assert later.arguments["x-expires"].value == 9000
    assert [each.status for each in down.statuses] == ["running"]


def test_upstream_that_is_removed_ends_its_links() -> None:
    """A parameter that is cleared ends its links, and one that is set later begins them."""
    sites, up, down = pair()
    down.world.submit(ClearParameter("/", "federation-upstream", "u"))
    sites.settle()
    assert list(down.links) == []
    down.set_upstream("u", up)
    sites.settle()
    assert [each.status for each in down.statuses] == ["running"]


def test_link_of_a_deleted_exchange_ends() -> None:
    """With the exchange its link goes."""
    sites, up, down = pair()
    down.client.ask(1, ExchangeDelete(exchange="x"))
    sites.settle()
    assert list(down.links) == []
    assert up.world.queue_names == set()


def test_deleted_queue_upstream_is_made_again() -> None:
    """A queue upstream that was deleted is told as RabbitMQ does, and declared anew after a wait."""
    sites, up, down = pair()
    up.client.ask(1, QueueDelete(queue="federation: x -> down"))
    sites.settle()
    (status,) = down.statuses
    assert (status.status, status.error) == ("error", "basic_cancel")
    assert down.lines[-1] == "Federation exchange 'x' in vhost '/' received a 'basic.cancel'"
    sites.advance(6)
    assert [each.status for each in down.statuses] == ["running"]


def test_missing_internal_exchange_is_found() -> None:
    """A link looks from time to time whether the exchange that fills its queue is there."""
    sites, up, down = pair()
    up.world.submit(DeleteExchange("/", "federation: x -> down A"))
    sites.advance(29)
    assert [each.status for each in down.statuses] == ["running"]
    sites.advance(8)
    assert [each.status for each in down.statuses] == ["running"]
    publish(up, "a", b"m")
    sites.settle()
    assert [each.body for each in messages(down)] == [b"m"]


def test_refused_messages_go_back_and_come_later() -> None:
    """A message that a full queue here refuses stays upstream; the link pauses, and does not spin."""
    sites, up, down = pair(reconnect_delay=2)
    limits = {"x-max-length": Field("l", 1), "x-overflow": Field("S", b"reject-publish")}
    down.queue("small", "a", exchange="x", arguments=limits)
    sites.settle()
    for number in range(3):
        publish(up, "a", str(number).encode())
    sites.settle()
    (life,) = down.links
    assert life.counters.refused == 2
    assert up.count("federation: x -> down") == 2
    assert up.world.queue("federation: x -> down").consumers.all == []
    client = down.world.client()
    client.send(1, BasicConsume(queue="small", consumer_tag="c", no_ack=True))
    sites.advance(3)
    assert up.count("federation: x -> down") == 0
    assert [each.body for each in client.received() if each.body] == [b"0", b"1", b"2"]


def test_restart_keeps_messages_upstream() -> None:
    """An operator's restart connects anew, and deletes nothing."""
    sites, up, down = pair()
    queue = up.world.broker.catalogue.queue("/", "federation: x -> down")
    assert queue is not None
    (life,) = down.links
    life.restart()
    sites.settle()
    assert life.status.status == "running"
    later = up.world.broker.catalogue.queue("/", "federation: x -> down")
    assert later is not None
    assert later.uid == queue.uid


def test_stopped_node_leaves_everything_upstream() -> None:
    """A node that stops lets go of its links: another node goes on with the queue."""
    sites, up, down = pair()
    down.links.stop(is_removed=False)
    sites.settle()
    publish(up, "a", b"m")
    sites.settle()
    assert up.count("federation: x -> down") == 1


def test_link_that_is_wanted_again_waits_for_the_former_one() -> None:
    """A policy that is cleared and set at once has a link that works, and not one whose queue was deleted."""
    sites, up, down = pair()
    down.world.submit(ClearPolicy("/", "fed"))
    down.follow()
    down.set_policy("^x$", "u")
    down.follow()  # before the former link has deleted anything
    (life,) = down.links
    assert not life.is_started
    sites.settle()
    assert down.lines[-1].endswith("connected to exchange 'x' in vhost '/' on amqp://up")
    assert [each.status for each in down.statuses] == ["running"]
    publish(up, "a", b"m")
    sites.settle()
    assert [each.body for each in messages(down)] == [b"m"]
