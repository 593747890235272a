"""Delayed exchanges: names of their queues, their arguments, and what `x-delay` means."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table, long, longstr
from node.catalogue.catalogue import Catalogue
from node.catalogue.command_codec import decode_command, encode_command
from node.catalogue.commands import (
    DeclareDelayed,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    ExchangeDeclared,
    PutVhost,
    Refused,
)
from node.catalogue.delayed import (
    DELAY_MAX_MS,
    DELAYED_TYPE,
    check_arguments,
    delay_ms,
    routing_type,
    waiting_queue,
)
from node.catalogue.durable_part import durable_changes
from node.catalogue.exchange_queues import exchange_of, is_exchange_queue

EXCHANGE = DeclareExchange(
    "/", "x", DELAYED_TYPE, durable=True, arguments={"x-delayed-type": longstr("topic")}
)
WAITING = DeclareQueue("/", waiting_queue("x"), "uid", durable=True, type="quorum")
DELAYED = DeclareDelayed("/", EXCHANGE, WAITING)


def catalogue() -> Catalogue:
    made = Catalogue()
    made.apply(PutVhost("/"))
    made.take_events()
    return made


def test_names_lead_both_ways() -> None:
    for name in ("x", "", "amq.delayed.x", "\udcff"):
        assert is_exchange_queue(waiting_queue(name))
        assert exchange_of(waiting_queue(name)) == name
    assert not is_exchange_queue("amq.delayed")


@pytest.mark.parametrize(
    ("field", "delay"),
    [
        (Field("I", 1), 1),
        (long(DELAY_MAX_MS), DELAY_MAX_MS),
        (long(DELAY_MAX_MS + 1), None),
        (Field("I", 0), None),
        (Field("I", -1), None),
        (Field("d", 1.9), 1),
        (Field("d", 0.9), None),
        (Field("D", (2, 12345)), 123),
        (Field("D", (255, 5)), None),
        (longstr("15"), 15),
        (longstr("-15"), None),
        (longstr(" 15"), None),
        (longstr("15.0"), None),
        (longstr("9" * 10_000), None),
        (longstr("\N{ARABIC-INDIC DIGIT ONE}"), None),
        (Field("t", True), None),
        (Field("V", None), None),
        (Field("F", {}), None),
        (Field("A", [long(5)]), None),
    ],
)
def test_what_a_header_means(field: Field, delay: int | None) -> None:
    """No value of any type is an error."""
    assert delay_ms({"x-delay": field}) == delay


def test_no_header_is_no_delay() -> None:
    assert delay_ms(None) is None
    assert delay_ms({"delay": long(5)}) is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, ReplyCode.PRECONDITION_FAILED),
        ({"x-delayed-type": long(1)}, ReplyCode.PRECONDITION_FAILED),
        ({"x-delayed-type": longstr("")}, ReplyCode.PRECONDITION_FAILED),
        ({"x-delayed-type": longstr(DELAYED_TYPE)}, ReplyCode.PRECONDITION_FAILED),
        ({"x-delayed-type": longstr("nope")}, ReplyCode.COMMAND_INVALID),
    ],
)
def test_bad_arguments(arguments: Table, code: ReplyCode) -> None:
    """A channel and the catalogue refuse them alike: what came by another way must not break the router."""
    with pytest.raises(ProtocolError) as caught:
        check_arguments(arguments)
    assert caught.value.code is code
    refused = catalogue().apply(DeclareExchange("/", "x", DELAYED_TYPE, arguments=arguments))
    assert isinstance(refused, Refused)
    assert refused.code is code


def test_the_routing_type() -> None:
    assert routing_type(EXCHANGE.arguments) == "topic"


def test_exchange_and_queue_come_and_go_together() -> None:
    """One command makes both, so no node ever knows one without the other."""
    made = catalogue()
    declared = made.apply(DELAYED)
    assert isinstance(declared, ExchangeDeclared)
    assert declared.created
    assert made.queue("/", WAITING.name) is not None
    again = made.apply(DeclareDelayed("/", EXCHANGE, DeclareQueue("/", WAITING.name, "other")))
    assert isinstance(again, ExchangeDeclared)
    assert not again.created
    queue = made.queue("/", WAITING.name)
    assert queue is not None
    assert queue.uid == "uid"
    made.apply(DeleteExchange("/", "x"))
    assert made.queue("/", WAITING.name) is None
    assert made.exchange("/", "x") is None


def test_a_vhost_that_is_not_there() -> None:
    assert isinstance(Catalogue().apply(DELAYED), Refused)


def test_the_command_can_be_written_and_read() -> None:
    assert decode_command(encode_command(DELAYED)) == DELAYED


def test_the_log_of_a_node_keeps_both() -> None:
    """Read again into an empty catalogue it gives the same exchange and the same queue, and takes both away."""
    made, read = catalogue(), catalogue()
    for command in (DELAYED, DeleteExchange("/", "x")):
        result = made.apply(command)
        for change in durable_changes(command, result, made.take_events(), made):
            read.apply(decode_command(encode_command(change)))
        assert read.queue("/", WAITING.name) == made.queue("/", WAITING.name)
        assert read.exchange("/", "x") == made.exchange("/", "x")
