"""A publish passes these checks before it reaches queues (amqp-behaviour §4.1; the steps are numbered as there)."""

from collections.abc import Sequence

import pytest

from node.amqp.field_table import Field, Table, array, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPermission, SetTopicPermission
from tests.kit.recorder import publish
from tests.kit.world import Client, World


def client_with_queue(exchange_type: str = "") -> Client:
    """A client with the queue q, bound with the key `k` to the exchange x."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    if exchange_type:
        client.send(1, ExchangeDeclare(exchange="x", type=exchange_type))
        client.send(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    client.received()
    return client


def got(client: Client) -> tuple[Properties, bytes]:
    """The one message in q."""
    client.send(1, BasicGet(queue="q", no_ack=True))
    (item,) = client.received()
    assert isinstance(item.method, BasicGetOk)
    assert item.properties is not None
    return item.properties, item.body


def error_of(client: Client) -> str:
    """The text of the one close frame, whose ids must be those of basic.publish."""
    (method,) = client.methods()
    assert isinstance(method, (ChannelClose, ConnectionClose))
    assert (method.failed_class_id, method.failed_method_id) == (60, 40)
    return method.reply_text


# --- the steps --------------------------------------------------------------------------------------------


def test_immediate() -> None:
    """Step 1 comes before everything else."""
    client = World().client()
    client.send(1, BasicPublish(exchange="nope", immediate=True))
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_text == "NOT_IMPLEMENTED - immediate=true"


@pytest.mark.parametrize(("exchange", "shown"), [("", "amq.default"), ("nope", "nope")])
def test_write_permission_comes_before_existence(exchange: str, shown: str) -> None:
    """Step 3."""
    client = World().client()
    client.world.submit(SetPermission("/", "guest", ".*", "^$", ".*"))
    client.publish(1, "k", b"", exchange=exchange)
    assert error_of(client) == (
        f"ACCESS_REFUSED - access to exchange '{shown}' in vhost '/' refused for user 'guest'"
    )


def test_a_missing_exchange() -> None:
    """Step 4."""
    client = World().client()
    client.publish(1, "k", b"", exchange="nope")
    assert error_of(client) == "NOT_FOUND - no exchange 'nope' in vhost '/'"


def test_an_internal_exchange() -> None:
    """Step 5, §3.6."""
    client = World().client()
    client.send(1, ExchangeDeclare(exchange="x", internal=True))
    client.received()
    client.publish(1, "k", b"", exchange="x")
    assert error_of(client) == "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'"


def test_topic_permission() -> None:
    """Step 6."""
    client = client_with_queue("topic")
    client.world.submit(SetTopicPermission("/", "guest", "x", "^k$", ".*"))
    client.publish(1, "k", b"ok", exchange="x")
    assert client.received() == []
    client.publish(1, "other", b"", exchange="x")
    assert "access to topic 'other' in exchange 'x' in vhost '/'" in error_of(client)


def test_a_request_without_a_reply_consumer() -> None:
    """Step 7."""
    client = client_with_queue()
    client.publish(1, "q", b"", properties=Properties(reply_to="amq.rabbitmq.reply-to"))
    assert error_of(client) == "PRECONDITION_FAILED - fast reply consumer does not exist"


@pytest.mark.parametrize("claim", ["bob", ""])
def test_a_claim_to_be_somebody_else(claim: str) -> None:
    """Step 8: an empty string counts as a claim."""
    client = client_with_queue()
    client.publish(1, "q", b"x", properties=Properties(user_id=claim))
    assert error_of(client) == (
        f"PRECONDITION_FAILED - user_id property set to '{claim}' but authenticated user was 'guest'"
    )


def test_a_claim_to_be_oneself() -> None:
    client = client_with_queue()
    client.publish(1, "q", b"x", properties=Properties(user_id="guest"))
    assert got(client)[0].user_id == "guest"


@pytest.mark.parametrize(
    ("expiration", "problem"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("10 ", '{leftover_string," "}'),
        ("315360000001", "{value_too_large,315360000001}"),
        ("٣", "no_integer"),
    ],
)
def test_bad_expirations(expiration: str, problem: str) -> None:
    """Step 9."""
    client = client_with_queue()
    client.publish(1, "q", b"", properties=Properties(expiration=expiration))
    assert error_of(client) == f"PRECONDITION_FAILED - invalid expiration '{expiration}': {problem}"


@pytest.mark.parametrize("expiration", ["315360000000", "+5000", "0005000"])
def test_good_expirations(expiration: str) -> None:
    """Step 9: kept as they came on normal delivery (§5.2)."""
    client = client_with_queue()
    client.publish(1, "q", b"x", properties=Properties(expiration=expiration))
    assert got(client)[0].expiration == expiration


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_bad_delivery_modes(mode: int) -> None:
    """Step 10."""
    client = client_with_queue()
    client.publish(1, "q", b"", properties=Properties(delivery_mode=mode))
    assert error_of(client) == f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}"


@pytest.mark.parametrize("mode", [None, 1, 2])
def test_good_delivery_modes(mode: int | None) -> None:
    client = client_with_queue()
    client.publish(1, "q", b"", properties=Properties(delivery_mode=mode))
    assert got(client)[0].delivery_mode == mode


@pytest.mark.parametrize(
    ("header", "value", "found"), [("CC", longstr("k"), "longstr"), ("BCC", long(1), "long")]
)
def test_sender_selected_keys_must_be_arrays(header: str, value: Field, found: str) -> None:
    """Step 10."""
    client = client_with_queue()
    client.publish(1, "q", b"", properties=Properties(headers={header: value}))
    assert error_of(client) == (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{header}",{found}}}'
    )


def test_nothing_of_a_faulty_run_is_enqueued_and_the_rest_is_dropped() -> None:
    client = client_with_queue()
    client.send(1, ConfirmSelect())
    client.publish(1, "q", b"good")
    client.publish(1, "q", b"bad", b"bad", properties=Properties(expiration="x"))
    client.publish(1, "q", b"late")
    first, *rest = client.methods()
    assert first == ConfirmSelectOk()
    assert rest[0] == BasicAck(1)
    assert [type(method) for method in rest[1:]] == [ChannelClose]
    assert client.world.queue("q").backlog.count == 1


# --- where it goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key", "headers", "arrives"),
    [
        ("direct", "k", {}, True),
        ("direct", "kk", {}, False),
        ("fanout", "any", {}, True),
        ("topic", "k", {}, True),
        ("headers", "any", {}, True),
    ],
)
def test_routing(kind: str, key: str, headers: dict[str, Field], arrives: bool) -> None:
    client = client_with_queue(kind)
    client.publish(1, key, b"x", exchange="x", properties=Properties(headers=headers))
    assert client.world.queue("q").backlog.count == arrives


def test_each_message_is_routed_by_its_own_headers() -> None:
    client = World().client()
    for value in ("1", "2"):
        client.send(1, QueueDeclare(queue=value))
        client.send(
            1,
            QueueBind(
                queue=value,
                exchange="amq.headers",
                arguments={"h": longstr(value), "x-match": longstr("all")},
            ),
        )
    for value in ("1", "2", "1", "3"):
        client.publish(
            1, "", b"", exchange="amq.headers", properties=Properties(headers={"h": longstr(value)})
        )
    client.received()
    assert [client.world.queue(name).backlog.count for name in ("1", "2")] == [2, 1]


@pytest.mark.parametrize(("value", "comes_back"), [("k", False), ("other", True)])
def test_mandatory_where_each_message_is_routed_by_itself(value: str, comes_back: bool) -> None:
    client = client_with_queue()
    client.send(1, QueueBind(queue="q", exchange="amq.headers", arguments={"h": longstr("k")}))
    client.received()
    properties = Properties(headers={"h": longstr(value)})
    client.publish(1, "", b"x", exchange="amq.headers", mandatory=True, properties=properties)
    assert [type(method) for method in client.methods()] == [BasicReturn] * comes_back


def keys(*names: str) -> Field:
    return array([longstr(name) for name in names])


def test_cc_and_bcc() -> None:
    """§3.15, §4.1: one copy per queue; CC stays, BCC is removed; the key shown is the one published with."""
    client = World().client()
    for name in ("q", "cc", "bcc"):
        client.send(1, QueueDeclare(queue=name))
    headers = {"CC": keys("cc", "q", "cc"), "BCC": keys("bcc", "nowhere"), "kept": long(1)}
    client.publish(1, "q", b"body", properties=Properties(headers=headers, app_id="a"))
    client.received()
    for name in ("q", "cc", "bcc"):
        assert client.world.queue(name).backlog.count == 1
        client.send(1, BasicGet(queue=name, no_ack=True))
        (item,) = client.received()
        assert item.method == BasicGetOk(client.channel()._next_tag - 1, False, "", "q", 0)
        assert item.properties == Properties(headers={"CC": headers["CC"], "kept": long(1)}, app_id="a")
        assert item.body == b"body"


def test_other_entries_than_texts_do_not_count() -> None:
    """§4.1: non-longstr entries are ignored."""
    client = client_with_queue()
    client.publish(1, "", b"x", properties=Properties(headers={"CC": array([long(1), longstr("q")])}))
    assert got(client)[1] == b"x"


def test_an_empty_bcc_is_removed_too() -> None:
    client = client_with_queue()
    client.publish(1, "q", b"x", properties=Properties(headers={"BCC": array([])}))
    assert got(client)[0].headers == {}


# --- §4.3: confirms ---------------------------------------------------------------------------------------


def confirming() -> Client:
    client = client_with_queue()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def test_publishes_of_one_read_are_confirmed_together() -> None:
    client = confirming()
    client.publish(1, "q", b"1")
    assert client.methods() == [BasicAck(1)]
    client.feed(publish(1, "q") * 5)
    assert client.methods() == [BasicAck(6, multiple=True)]


def test_the_return_comes_before_the_ack() -> None:
    """§4.2."""
    client = confirming()
    client.publish(1, "nowhere", b"x", mandatory=True)
    assert [type(method) for method in client.methods()] == [BasicReturn, BasicAck]


def test_unroutable_messages_are_acked() -> None:
    """§4.2."""
    client = confirming()
    client.publish(1, "nowhere", b"x")
    assert client.methods() == [BasicAck(1)]


def test_numbers_count_from_select() -> None:
    """§4.3: idempotent."""
    client = client_with_queue()
    client.publish(1, "q", b"before")
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1")
    client.received()
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"2")
    assert client.methods() == [BasicAck(2)]


# --- headers exchanges ------------------------------------------------------------------------------------


def client_of_headers(monkeypatch: pytest.MonkeyPatch, arguments: Table) -> tuple[Client, list[Table | None]]:
    """A client with the queue q, bound to the exchange x of type headers, and what routing looks at from now on."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, ExchangeDeclare(exchange="x", type="headers"))
    client.send(1, QueueBind(queue="q", exchange="x", arguments=arguments))
    client.received()
    router = client.world.broker.vhosts["/"].router
    route, looked_at = router.route, list[Table | None]()

    def told(
        exchange: str,
        keys: Sequence[str],
        headers: Table | None = None,
        content: bytes | None = None,
        past: str | None = None,
    ) -> list[str]:
        looked_at.append(headers)
        return route(exchange, keys, headers, content, past)

    monkeypatch.setattr(router, "route", told)
    return client, looked_at


def test_only_headers_that_bindings_ask_for_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has room for thousands of them, and the others on the node wait."""
    client, looked_at = client_of_headers(monkeypatch, {"asked": long(1), "x-match": longstr("any")})
    headers = {f"k{number}": long(number) for number in range(100)} | {"asked": long(1)}
    client.publish(1, "", b"m", exchange="x", properties=Properties(headers=headers))
    assert looked_at == [{"asked": long(1)}]
    assert got(client) == (Properties(headers=headers), b"m")


def test_messages_are_not_looked_at_when_no_binding_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is found once, until somebody binds."""
    client, looked_at = client_of_headers(monkeypatch, {})
    for value in range(3):
        client.publish(1, "", b"m", exchange="x", properties=Properties(headers={"k": long(value)}))
    assert looked_at == [None]
    client.send(1, QueueBind(queue="q", exchange="x", arguments={"k": long(7)}))
    client.received()
    client.publish(1, "", b"m", exchange="x", properties=Properties(headers={"k": long(8), "l": long(7)}))
    assert looked_at == [None, {"k": long(8)}]
