"""The index of a delayed exchange: delayed messages go to the queue where they wait, the others as its type says."""

from node.amqp.field_table import long, longstr
from node.catalogue.delayed import waiting_queue
from node.catalogue.records import Binding, Exchange
from node.routing.exchanges import Destination
from node.routing.exchanges.delayed import DelayedIndex
from node.routing.exchanges.headers import HeadersIndex
from node.routing.exchanges.topic import TopicIndex
from node.routing.router import Router

QUEUES = {waiting_queue("x"), "q"}
WAITING = [Destination("queue", waiting_queue("x"))]
BOUND = [Destination("queue", "q")]


def test_the_delay_decides() -> None:
    """A negative one is that of a message whose time has come."""
    index = DelayedIndex(TopicIndex(), waiting_queue("x"), QUEUES)
    index.bind(Binding("/", "x", "queue", "q", "a.*"))
    assert list(index.match("a.b", {"x-delay": long(5)})) == WAITING
    assert list(index.match("b", {"x-delay": long(5)})) == WAITING
    for headers in (None, {}, {"x-delay": long(-5)}, {"x-delay": longstr("no")}):
        assert list(index.match("a.b", headers)) == BOUND
        assert list(index.match("b", headers)) == []
    assert index.states > 0
    index.unbind(Binding("/", "x", "queue", "q", "a.*"))
    assert list(index.match("a.b")) == []


def test_the_headers_that_routing_needs() -> None:
    """The delay and those of the routing type."""
    index = DelayedIndex(HeadersIndex(), waiting_queue("x"), QUEUES)
    assert set(index.headers_asked) == {b"x-delay"}
    index.bind(Binding("/", "x", "queue", "q", "", {"colour": longstr("red")}))
    assert set(index.headers_asked) == {b"x-delay", b"colour"}
    assert list(index.match("", {"colour": longstr("red"), "x-delay": long(0)})) == BOUND


def test_without_its_queue_a_delayed_message_goes_nowhere() -> None:
    """Neither bindings nor the alternate exchange get it, as it would come early."""
    router = Router()
    for name, type_ in (("x", "x-delayed-message"), ("other", "fanout")):
        arguments = {"x-delayed-type": longstr("topic")}
        router.add_exchange(Exchange("/", name, type_, arguments=arguments), "other")
        router.bind(Binding("/", name, "queue", "q", "#"))
    assert router.route("x", ["a"], {"x-delay": long(5)}) == []
    assert router.route("x", ["a"], {"x-delay": long(-5)}) == ["q"]
    router.add_queue(waiting_queue("x"))
    assert router.route("x", ["a"], {"x-delay": long(5)}) == [waiting_queue("x")]
    assert router.route("", [waiting_queue("x")]) == []
