"""Federated exchanges, whatever is upstream and whatever is downstream."""

import pytest

from node.amqp.field_table import Field, longstr
from node.amqp.properties import Properties
from tests.conformance.federation.conftest import Pair
from tests.kit.patience import wait_until

pytestmark = pytest.mark.slow


def test_messages_come_with_their_way(pair: Pair) -> None:
    """Messages that a binding here asks for come, with the same entry of `x-received-from` in all directions."""
    up, down = pair
    x, q = "way-x", "way-q"
    down.exchange(x)
    down.queue(q, "a.#", exchange=x)
    down.set_upstream("way", up.uri)
    down.federate(f"^{x}$", "way", "way")
    down.await_links()
    properties = Properties(
        content_type="text/plain",
        headers={"h": longstr("v")},
        delivery_mode=2,
        message_id="1",
        user_id="guest",
    )
    up.publish(x, "a.b", b"wanted", properties=properties)
    up.publish(x, "b", b"unwanted")
    (found,) = down.get(q, 1)
    assert found.body == b"wanted"
    assert found.method.routing_key == "a.b"
    assert found.method.exchange == x
    assert found.properties.message_id == "1"
    assert found.properties.user_id is None
    assert found.headers["h"] == longstr("v")
    assert found.headers.keys() == {"h", "x-received-from"}
    (entry,) = found.headers["x-received-from"].value
    assert list(entry.value.items()) == [
        ("uri", longstr(up.uri)),
        ("exchange", longstr(x)),
        ("redelivered", Field("t", False)),
        ("cluster-name", longstr(up.name)),
        ("vhost", longstr("/")),
    ]


def test_bindings_and_names_upstream(pair: Pair) -> None:
    """The queue, the internal exchange and the bindings upstream have the same names in all directions, and go."""
    up, down = pair
    x = "names-x"
    down.exchange(x)
    down.queue("names-q", "one", "two", exchange=x)
    down.set_upstream("names", up.uri, expires=3_600_000)
    down.federate(f"^{x}$", "names", "names")
    down.await_links()
    queue = f"federation: {x} -> {down.name}"
    wait_until(lambda: up.has_queue(queue))
    up.publish(x, "one", b"1")
    up.publish(x, "two", b"2")
    up.publish(x, "three", b"3")
    assert sorted(each.body for each in down.get("names-q", 2)) == [b"1", b"2"]
    down.queue("names-q", "three", exchange=x)

    def is_bound() -> bool:
        up.publish(x, "three", b"again")
        return down.count("names-q") > 0

    wait_until(is_bound)
    down.clear_upstream("names")
    down.await_links(0)
    wait_until(lambda: not up.has_queue(queue))


def test_messages_wait_upstream_while_connections_are_cut(pair: Pair) -> None:
    """Messages that are published while the link has no connection come later, all of it and in order."""
    up, down = pair
    x = "cut-x"
    down.exchange(x)
    down.queue("cut-q", "#", exchange=x)
    down.set_upstream("cut", up.uri, reconnect_delay=1)
    down.federate(f"^{x}$", "cut", "cut")
    down.await_links()
    for round_ in range(3):
        up.publish(x, "a", *(f"{round_}-{number}".encode() for number in range(50)))
        up.admin.close_all_connections("a cut")
    down.await_links()
    found = down.get("cut-q", 150)
    bodies = list(dict.fromkeys(each.body for each in found))
    assert bodies == [f"{round_}-{number}".encode() for round_ in range(3) for number in range(50)]


def test_two_brokers_that_are_each_other_s_upstream(pair: Pair) -> None:
    """In a cycle each message comes to each broker once."""
    one, two = pair
    x = "cycle-x"
    for here, there in ((one, two), (two, one)):
        here.exchange(x, "fanout")
        here.queue("cycle-q", "", exchange=x)
        here.set_upstream("cycle", there.uri, max_hops=4)
    for here in (one, two):
        here.federate(f"^{x}$", "cycle", "cycle")
    for here in (one, two):
        here.await_links()
    one.publish(x, "", b"from one")
    two.publish(x, "", b"from two")
    for here in (one, two):
        found = [each.body for each in here.get("cycle-q", 2)]
        assert sorted(found) == [b"from one", b"from two"]
    for here in (one, two):
        assert here.count("cycle-q") == 0


def test_ids_are_the_same_on_both(pair: Pair) -> None:
    """A link has the same id whatever the downstream is, as scripts may keep it."""
    up, down = pair
    down.exchange("id-x")
    down.set_upstream("id", up.uri)
    down.federate("^id-x$", "id", "id")
    down.await_links()
    assert down.ids() == ["1d4bc344"]
