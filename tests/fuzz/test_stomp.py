"""STOMP: any bytes are frames or a fault however they are cut, and no frames make a connection raise.

Names come from small pools, so that frames refer to each other's queues, subscriptions, messages and transactions.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from node.stomp.decoder import Decoder, Limits
from node.stomp.errors import FramingError
from node.stomp.frame import Frame, encode
from node.stomp.versions import VERSIONS
from tests.kit.stomp_world import StompTestClient, connected
from tests.kit.world import World, check_invariants

LIMITS = Limits(head_max_bytes=200, headers_max=8, body_max_bytes=60)

names = st.sampled_from(
    [
        "a",
        "b",
        "",
        "a:b",
        "c\\",
        "é\n",
        "@@",
        "T_a@@s@@1",
        "T_a@@s@@x",
        "T_a@@s@@99999999999999999999",
        "/temp-queue/a",
        "x" * 256,
    ]
)
destinations = st.sampled_from(
    [
        "/queue/a",
        "/queue/b",
        "/topic/a.b",
        "/topic/#",
        "/exchange/amq.direct/a",
        "/exchange/none",
        "/amq/queue/a",
        "/temp-queue/a",
        "/reply-queue/a",
        "/queue",
        "plain",
        "",
    ]
)
flags = st.sampled_from(["true", "false", "True", "maybe"])
numbers = st.sampled_from(["0", "1", "2", " 3 ", "-1", "many", "9" * 30])
values = {
    "destination": destinations,
    "id": names,
    "transaction": names,
    "receipt": names,
    "message-id": names,
    "reply-to": destinations,
    "ack": st.sampled_from(["auto", "client", "client-individual", "never"]),
    "accept-version": st.sampled_from(["1.0", "1.1,1.2", "3"]),
    "login": st.sampled_from(["guest", "nobody"]),
    "heart-beat": st.sampled_from(["0,0", "1,1", "a,b", "1"]),
    "durable": flags,
    "auto-delete": flags,
    "exclusive": flags,
    "persistent": flags,
    "requeue": flags,
    "prefetch-count": numbers,
    "priority": numbers,
    "expiration": numbers,
    "x-max-length": numbers,
    "x-queue-name": names,
    "content-length": st.sampled_from(["0", "1", "2", "x"]),
}
headers = st.lists(
    st.sampled_from(sorted(values)).flatmap(lambda name: values[name].map(lambda value: (name, value))),
    max_size=6,
)
commands = st.sampled_from(
    [
        "SEND",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "ACK",
        "NACK",
        "BEGIN",
        "COMMIT",
        "ABORT",
        "CONNECT",
        "STOMP",
        "DISCONNECT",
        "MESSAGE",
        "",
    ]
)
settlements = st.builds(
    lambda command, name, more: (command, [("id", name), ("message-id", name), *more]),
    st.sampled_from(["ACK", "NACK"]),
    names,
    st.lists(st.tuples(st.just("transaction"), names), max_size=1),
)
subscriptions = st.builds(
    lambda destination, name, more: ("SUBSCRIBE", [("destination", destination), ("id", name), *more]),
    destinations,
    names,
    headers,
)
bodies = st.sampled_from([b"", b"m", b"mm", b"\n\n"])
wholes = st.builds(
    lambda head, body, version: encode(*head, body, version),
    st.tuples(commands, headers) | settlements | subscriptions,
    bodies,
    st.sampled_from(VERSIONS),
)
damaged = st.tuples(wholes, st.integers(0, 1 << 16), st.integers(0, 255)).map(
    lambda each: each[0][: each[1] % len(each[0])] + bytes([each[2]]) + each[0][each[1] % len(each[0]) + 1 :]
)
streams = st.lists(wholes | damaged | st.binary(max_size=40), max_size=6).map(b"".join)
histories = st.tuples(
    st.lists(wholes, max_size=20), st.lists(damaged | st.binary(max_size=40), max_size=2)
).map(lambda each: each[0] + each[1])
cuts = st.lists(st.integers(1, 60), min_size=1, max_size=10)


def decoded(data: bytes, sizes: list[int], version: str) -> tuple[list[Frame], str]:
    """Return the frames in pieces of these sizes, over and over, and the fault that ended them."""
    decoder, found, at, turn = Decoder(LIMITS, version), list[Frame](), 0, 0
    try:
        while at < len(data):
            size = sizes[turn % len(sizes)]
            decoder.feed(data[at : at + size])
            at, turn = at + size, turn + 1
            found += iter(decoder.next, None)
    except FramingError as error:
        return found, error.detail
    return found, ""


@given(streams, cuts, st.sampled_from(VERSIONS))
def test_any_bytes_in_any_pieces_are_the_same_frames(data: bytes, sizes: list[int], version: str) -> None:
    frames, fault = decoded(data, sizes, version)
    assert (frames, fault) == decoded(data, [1], version) == decoded(data, [1 << 20], version)
    for head, body in frames:
        assert len(body) <= LIMITS.body_max_bytes
        assert len(head.headers) <= LIMITS.headers_max


@settings(deadline=None, max_examples=70)
@given(
    st.lists(wholes | damaged | st.binary(max_size=40), max_size=25), st.sampled_from(VERSIONS), st.booleans()
)
def test_no_frames_make_a_connection_raise(sent: list[bytes], version: str, closes: bool) -> None:
    """Whatever two clients send, the plug-in has no fault, and the broker's invariants hold."""
    world = World()
    clients = [
        connected(world, version, close_after_error="true" if closes else "false"),
        StompTestClient(world, {"implicit_connect": "true", "close_after_error": "false"}, version=version),
    ]
    for number, data in enumerate(sent):
        clients[number % 2].feed(data)
        if number % 3 == 0:
            world.settle()
            world.advance(1.0)
    world.advance(40.0)
    assert world.broker.exchange_types.failures == {}
    check_invariants(world)
    for client in clients:
        client.lose()
    world.settle()
    check_invariants(world)
