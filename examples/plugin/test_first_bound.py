"""The exchange type x-first-bound, without a node. Run it with pytest in this folder."""

from first_bound import PLUGIN

from node.plugins import Binding, Destination, Message, Surroundings


def to_queue(name: str) -> Binding:
    return Binding("/", "e", "queue", name, "")


def test_messages_go_to_the_destination_that_was_bound_first() -> None:
    surroundings = Surroundings(lambda bound: 0, lambda queue: True, lambda queue: True)
    index = PLUGIN.exchange_types[0].index({}, surroundings)
    assert list(index.route(Message(["key"]))) == []
    index.bind(to_queue("a"))
    index.bind(to_queue("b"))
    assert list(index.route(Message(["key"]))) == [Destination("queue", "a")]
    index.unbind(to_queue("a"))
    assert list(index.route(Message(["key"]))) == [Destination("queue", "b")]
