"""Table bombs: depth, numbers of entries and lengths that only the sender believes (docs/limits.md, "Field tables")."""

import struct
from collections.abc import Callable, Iterator

import pytest

from node.amqp import methods
from node.amqp.constants import FRAME_HEADER, FRAME_METHOD
from node.amqp.field_table import TABLE_DEPTH_MAX, VOID, Table, array, encode_table, longstr
from node.amqp.method_codec import encode_method
from node.amqp.properties import Properties
from tests.adversity.siege import Siege
from tests.kit.amqp_client import Connection, content_header, frame
from tests.kit.attack import method, publish, settled
from tests.kit.node_process import NodeProcess, TemporaryNode

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]

ENTRIES = 18_000
WIDE: Table = {f"{number:x}": VOID for number in range(ENTRIES)}
"""As many entries as a frame of 128 KiB takes."""

EMPTY = encode_table({})


def nested(depth: int, tag: bytes = b"F") -> bytes:
    """A table with tables (or arrays) in it, `depth` in all, whose sizes are right."""
    raw = b""
    for level in range(depth - 1):
        key = b"\x01k" if tag == b"F" or level == depth - 2 else b""
        raw = key + tag + struct.pack(">I", len(raw)) + raw
    return struct.pack(">I", len(raw)) + raw


def size(number: int) -> bytes:
    return struct.pack(">I", number)


BOMBS = {
    "depth of 18000": nested(18_000),
    "depth of 26000 arrays": nested(26_000, b"A"),
    "one deeper than allowed": nested(TABLE_DEPTH_MAX + 1),
    "huge table": size(0xFFFFFFFF) + b"\x01kV",
    "huge string": size(7) + b"\x01kS" + size(0xFFFFFFFF),
    "huge array": size(7) + b"\x01kA" + size(0x7FFFFFFF),
    "table beyond its table": size(7) + b"\x01kF" + size(100) + bytes(100),
    "key beyond its table": size(3) + b"\xffkV",
    "unknown type": size(3) + b"\x01k\x00",
    "no type": size(2) + b"\x01k",
}


def with_arguments(sent: methods.Method, raw: bytes) -> bytes:
    """The payload of a method that ends with an empty table, with `raw` in its place."""
    payload = encode_method(sent)
    assert payload.endswith(EMPTY)
    return payload.removesuffix(EMPTY) + raw


@pytest.fixture(scope="module")
def bombed() -> Iterator[NodeProcess]:
    """One node for all bombs: what one leaves behind the next ones would show."""
    with TemporaryNode() as started:
        yield started
        assert "Traceback" not in started.log_text()


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_table_bomb_ends_the_connection_that_threw_it(bombed: NodeProcess, bomb: bytes) -> None:
    """In arguments of methods: a connection error. In headers: 541 (amqp-behaviour §1.7, garbage property list)."""
    with Siege(bombed, peak_mib=8):
        for sent in (methods.QueueDeclare(queue="bomb"), methods.BasicConsume(queue="bomb")):
            attacker = Connection(bombed)
            attacker.channel(1)
            attacker.send_frame(FRAME_METHOD, 1, with_arguments(sent, bomb))
            closed = attacker.expect(methods.ConnectionClose)
            assert closed.reply_code == 501, closed
            attacker.abandon()
        attacker = Connection(bombed)
        attacker.channel(1)
        head = method(1, methods.BasicPublish(routing_key="nowhere"))
        attacker.send_bytes(head + frame(FRAME_HEADER, 1, content_header(0, b"\x20\x00" + bomb)))
        attacker.expect_connection_close(541, "INTERNAL_ERROR", None)


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_table_bomb_before_login_ends_in_silence(bombed: NodeProcess, bomb: bytes) -> None:
    """In client-properties: silence, then a reset (amqp-behaviour §1.3). Here only that it is not answered."""
    attacker = Connection(bombed, open=False)
    attacker.start()
    rest = encode_method(methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest"))[
        4 + len(EMPTY) :
    ]
    attacker.send_frame(FRAME_METHOD, 0, b"\0\x0a\0\x0b" + bomb[:3000] + rest)
    attacker.expect_nothing(0.1)
    attacker.socket.close()


def test_wide_tables_cost_their_bytes_times_a_constant(node: NodeProcess, siege: Begin) -> None:
    """An entry of five octets becomes some 200 bytes of Python: at most 64 × what was sent, while the queue exists."""
    sent = 20 * len(encode_table(WIDE))
    with siege(peak_mib=64 * sent // 2**20):
        attacker = Connection(node)
        channel = attacker.channel(1)
        for number in range(20):
            channel.declare(f"wide-{number}", arguments=WIDE, exclusive=True)
        attacker.close()


def test_giant_tables_at_a_headers_exchange(node: NodeProcess, siege: Begin) -> None:
    """Ten bindings with 18,000 conditions each, and messages whose headers meet all but the last."""
    almost = WIDE | {f"{ENTRIES - 1:x}": longstr("no")}
    pattern = WIDE | {f"{ENTRIES - 1:x}": longstr("yes"), "x-match": longstr("all")}
    sent = 10 * len(encode_table(pattern))
    with siege(peak_mib=64 * 2 * sent // 2**20):
        attacker = Connection(node)
        channel = attacker.channel(1)
        queue = channel.declare(exclusive=True)
        for number in range(10):
            arguments = pattern | {"n": longstr(str(number))}
            channel.call(methods.QueueBind, queue=queue, exchange="amq.headers", arguments=arguments)
        message = publish(1, exchange="amq.headers", properties=Properties(headers=almost))
        attacker.send_bytes(message * 50)
        settled(attacker)
        assert channel.get(queue) is None
        attacker.close()


def test_ten_thousand_carbon_copies(node: NodeProcess, siege: Begin) -> None:
    """CC with 10,000 keys, each message routed anew. The keys are kept with the queued message, at 60 bytes each."""
    keys = [longstr(f"cc-{number}") for number in range(10_000)]
    with siege(peak_mib=64):
        attacker = Connection(node)
        channel = attacker.channel(1)
        queue = channel.declare("cc-9999", exclusive=True)
        message = publish(1, properties=Properties(headers={"CC": array(keys)}))
        attacker.send_bytes(message * 50)
        settled(attacker)
        assert channel.call(methods.QueuePurge, queue=queue).message_count == 50
        attacker.close()
