"""Routes by headers: looked up once for the same properties, a bounded number at once, and faults in their place."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table, long, longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck, BasicPublish, ConfirmSelect, ExchangeDeclare, QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.client.header_routes import (
    AT_ONCE_MAX,
    HITS_PER_LOOK_UP,
    KNOWN_MAX,
    LOOKED_UP_MAX,
    ROOM_BYTES,
    HeaderRoutes,
    Part,
    Room,
)
from node.queue.content import properties_of
from node.queue.queue import Queue
from tests.kit.messages import bodies_of, content
from tests.kit.world import Client, World, check_invariants


class Lookups:
    """Targets by the header `h`: a queue for each value, no queue without it, an error for the value "bad"."""

    def __init__(self, room: Room | None = None) -> None:
        world = World()
        client = world.client()
        for name in ("a", "b"):
            client.ask(1, QueueDeclare(queue=name))
        self.queues: dict[str, Queue] = {name: world.queue(name) for name in ("a", "b")}
        self.count = 0
        self.routes = HeaderRoutes({b"h"}, self.find, world.broker.vhosts["/"].queues, room or Room())

    def find(self, headers: Table, content: bytes) -> list[Queue]:
        self.count += 1
        value = headers["h"].value if "h" in headers else b""
        assert isinstance(value, bytes)
        if value == b"bad":
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "bad")
        queue = self.queues.get(value[:1].decode())
        return [queue] if queue else []

    def parts(self, contents: list[bytes], first: int = 0) -> list[tuple[list[str], int, int]]:
        found = self.routes.parts(contents, first)
        assert all(isinstance(part, Part) for part in found)
        return [([queue.record.name for queue in targets], start, stop) for targets, start, stop in found]


def headed(*values: str | None) -> list[bytes]:
    return [
        content(b"m", properties=Properties(headers={"h": longstr(value)} if value is not None else None))
        for value in values
    ]


def test_the_same_properties_are_looked_up_once() -> None:
    lookups = Lookups()
    contents = headed("a", "a", "b", "a", None)
    expected = [(["a"], 0, 2), (["b"], 2, 3), (["a"], 3, 4), ([], 4, 5)]
    assert lookups.parts(contents) == expected
    assert lookups.parts(contents) == expected
    assert lookups.count == 3
    assert lookups.parts(contents, 2) == expected[1:]


def test_other_properties_with_the_same_targets_stay_together() -> None:
    lookups = Lookups()
    assert lookups.parts(headed("a1", "a2", "a3", "b")) == [(["a"], 0, 3), (["b"], 3, 4)]
    assert lookups.count == 4


def named(count: int, **more: object) -> list[bytes]:
    """Return messages with ids of their own."""
    return [
        content(b"m", properties=Properties(message_id=f"{number}", **more))  # type: ignore[arg-type]
        for number in range(count)
    ]


def test_messages_without_the_headers_are_looked_up_once() -> None:
    """Whatever else they have; one whose octets have the name elsewhere, as `other` has, is read for it."""
    lookups = Lookups()
    few = named(3)
    assert lookups.parts(few) == [([], 0, 3)]
    assert lookups.count == 1
    other = named(3, type="h")
    assert lookups.parts([*few, *other, *headed("a"), *few]) == [([], 0, 6), (["a"], 6, 7), ([], 7, 10)]
    assert lookups.count == 2


def test_a_value_that_is_repeated_is_looked_up_once_whatever_else_is_in_the_properties() -> None:
    """Messages that follow each other with ids of their own; a like value of another type is another one."""
    lookups = Lookups()
    contents = named(60, headers={"h": longstr("a1"), "n": long(1)})
    assert lookups.parts(contents) == [(["a"], 0, 60)]
    assert lookups.count == 1
    symbols = named(60, headers={"h": longstr("a1")._replace(tag="x")})
    lookups.parts(symbols)
    assert lookups.count == 2


def test_messages_without_the_headers_cost_little_of_what_is_done_at_once() -> None:
    """So many as cost what the look-ups do."""
    lookups = Lookups()
    contents = named(1000)
    lookups.parts(contents[:1])
    assert lookups.parts(contents) == [([], 0, LOOKED_UP_MAX * HITS_PER_LOOK_UP)]
    assert lookups.count == 1


def test_messages_without_the_headers_are_looked_at_where_a_queue_holds_some() -> None:
    """One that a queue holds until a time goes elsewhere than the others, though none has the headers asked for."""
    client = client_with_colours()
    client.ask(1, QueueDeclare(queue="late", arguments={"x-hold-until-header": longstr("eta")}))
    client.ask(1, QueueBind(queue="late", exchange="x", arguments={"x-match": longstr("all")}))
    world = client.world
    held = Properties(headers={"eta": Field("d", world.now + world.broker.epoch_s + 60)})
    sent = [Properties(message_id="1"), Properties(message_id="2"), held, Properties(message_id="3")]
    client.feed(b"".join(frames(b"%d" % at, each) for at, each in enumerate(sent)))
    world.settle()
    runs = world.queue("late").backlog.in_memory(0)
    assert [body for run in runs for body in bodies_of(run)] == [b"0", b"1", b"3"]


def test_a_bounded_number_is_looked_up_at_once() -> None:
    """Known ones cost nothing."""
    lookups = Lookups()
    contents = headed(*(f"a{number}" for number in range(LOOKED_UP_MAX + 3)))
    assert lookups.parts(contents) == [(["a"], 0, LOOKED_UP_MAX)]
    assert lookups.parts(contents) == [(["a"], 0, len(contents))]


def test_long_properties_count_for_several() -> None:
    """The first message always goes, whatever it costs."""
    lookups = Lookups()
    contents = headed("a" * 50_000, "a" * 60_000)
    assert lookups.parts(contents) == [(["a"], 0, 1)]
    assert lookups.parts(contents, 1) == [(["a"], 1, 2)]
    lookups.parts(contents)
    assert lookups.count == 3, "they are not remembered"


def test_a_long_run_goes_in_pieces() -> None:
    lookups = Lookups()
    contents = headed("a", "b") * AT_ONCE_MAX
    found = lookups.parts(contents)
    assert found[-1][2] == AT_ONCE_MAX


def test_a_message_that_cannot_be_routed_stops_what_follows_it() -> None:
    """Messages before it are published first; it is the first of the next call."""
    lookups = Lookups()
    contents = headed("a", "bad", "b")
    assert lookups.parts(contents) == [(["a"], 0, 1)]
    with pytest.raises(ProtocolError):
        lookups.parts(contents, 1)


def test_what_is_remembered_is_bounded() -> None:
    lookups = Lookups()
    contents = headed(*(f"a{number}" for number in range(KNOWN_MAX + 1)))
    at = 0
    while at < len(contents):
        at = lookups.parts(contents, at)[-1][2]
    before = lookups.count
    lookups.parts(contents[:1])
    assert lookups.count == before + 1


def test_routes_of_a_connection_share_a_room_for_what_they_remember() -> None:
    """One that fills up starts over; where others have it all, each message is looked up."""
    room = Room()
    first, second, third = Lookups(room), Lookups(room), Lookups(room)
    room.left = 3000
    contents = headed(*(f"a{number}" for number in range(50)))
    for lookups in (first, second):
        at = 0
        while at < len(contents):
            at = lookups.parts(contents, at)[-1][2]
        assert lookups.count == 50
        assert 0 <= sum(len(octets) for octets in lookups.routes._known) + room.left <= 3000
    room.left = 0
    for _ in range(2):
        assert third.parts(contents[:2]) == [(["a"], 0, 2)]
    assert third.count == 4
    assert room.is_full


def test_a_connection_forgets_its_routes_when_they_remember_too_much() -> None:
    """Routes of many keys take no more than the room of one connection."""
    client = client_with_colours()
    routes = client.connection._routes
    for key in range(20):
        for number in range(KNOWN_MAX):
            colour = Properties(headers={"colour": longstr(f"{number:0400}")})
            method = method_frame(1, BasicPublish(exchange="x", routing_key=f"{key}"))
            client.feed(method + content(b"m", frame_max=131_072, properties=colour))
        assert 0 <= routes._room.left <= ROOM_BYTES
    kept = [each.by_headers for each in routes._routes.values() if each.by_headers is not None]
    octets = [len(known) for each in kept for known in each._known]
    assert len(octets) >= KNOWN_MAX
    assert sum(octets) <= ROOM_BYTES
    assert len(kept) < 20


# --- on a channel -------------------------------------------------------------------------------------------


def client_with_colours() -> Client:
    """A headers exchange that leads to the queues red and blue."""
    client = World().client()
    client.ask(1, ExchangeDeclare(exchange="x", type="headers"))
    for colour in ("red", "blue"):
        client.ask(1, QueueDeclare(queue=colour))
        client.ask(1, QueueBind(queue=colour, exchange="x", arguments={"colour": longstr(colour)}))
    return client


def coloured(colour: str, **more: object) -> Properties:
    return Properties(headers={"colour": longstr(colour), "n": long(1)}, **more)  # type: ignore[arg-type]


def frames(body: bytes, properties: Properties) -> bytes:
    """A publish to the exchange x."""
    method = method_frame(1, BasicPublish(exchange="x", routing_key=""))
    return method + content(body, frame_max=131_072, properties=properties)


@pytest.mark.parametrize("is_whole", [True, False])
def test_messages_of_one_read_go_where_their_headers_say(is_whole: bool) -> None:
    """In order, confirmed all, however many come at once."""
    client = client_with_colours()
    client.ask(1, ConfirmSelect())
    sent: dict[str, list[bytes]] = {"red": [], "blue": [], "green": []}
    publishes: list[bytes] = []
    for number in range(60):
        colour = ("red", "red", "blue", "green", "blue")[number * number % 5]
        body = b"%d" % number
        sent[colour].append(body)
        publishes.append(frames(body, coloured(colour, delivery_mode=2)))
    for data in [b"".join(publishes)] if is_whole else publishes:
        client.feed(data)
    world = client.world
    world.settle()
    acks = [method for method in client.methods() if isinstance(method, BasicAck)]
    assert acks[-1].delivery_tag == 60
    for colour in ("red", "blue"):
        runs = world.queue(colour).backlog.in_memory(0)
        assert [body for run in runs for body in bodies_of(run)] == sent[colour]
    check_invariants(world)


def test_traits_that_change_within_a_read_are_those_of_each_message() -> None:
    client = client_with_colours()
    modes = [2 if number % 3 else None for number in range(8)]
    client.feed(b"".join(frames(b"m", coloured("red", delivery_mode=mode)) for mode in modes))
    client.world.settle()
    runs = client.world.queue("red").backlog.in_memory(0)
    assert [run.envelope.persistent for run in runs for _ in run.contents] == [mode == 2 for mode in modes]


def test_carbon_copies_have_a_route_of_their_own() -> None:
    """Between others with the same headers but these."""
    client = client_with_colours()
    properties = coloured("red")
    assert properties.headers is not None
    properties.headers["BCC"] = Field("A", [longstr("elsewhere")])
    plain = coloured("red")
    client.feed(b"".join(frames(b"m", each) for each in (plain, plain, properties, properties, plain)))
    client.world.settle()
    runs = list(client.world.queue("red").backlog.in_memory(0))
    assert [run.envelope.bcc for run in runs for _ in run.contents] == [(), (), *2 * [("elsewhere",)], ()]
    assert [properties_of(raw).headers for run in runs for raw in run.contents] == 5 * [plain.headers]
