"""The exchange class (amqp-behaviour §3.3–§3.6, §3.14)."""

import pytest

from node.amqp.field_table import longstr
from node.amqp.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueDeclare,
)
from node.catalogue.commands import SetPermission
from tests.kit.world import Client, World

DEFAULT = "ACCESS_REFUSED - operation not permitted on the default exchange"


def client_with_exchange() -> Client:
    client = World().client()
    client.send(1, ExchangeDeclare(exchange="x"))
    client.received()
    return client


@pytest.mark.parametrize("passive", [False, True])
def test_declare(passive: bool) -> None:
    client = client_with_exchange()
    assert client.ask(1, ExchangeDeclare(exchange="x", passive=passive)) == ExchangeDeclareOk()
    client.send(1, ExchangeDeclare(exchange="x", passive=passive, nowait=True))
    assert client.received() == []


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (ExchangeDeclare(exchange="", type="bogus"), 503, "COMMAND_INVALID - unknown exchange type 'bogus'"),
        (ExchangeDeclare(exchange=""), 403, DEFAULT),
        (ExchangeDeclare(exchange="", passive=True), 403, DEFAULT),
        (
            ExchangeDeclare(exchange="amq.mine"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (ExchangeDeclare(exchange="nope", passive=True), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
        (
            ExchangeDeclare(exchange="x", type="fanout"),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': "
            "received 'fanout' but current is 'direct'",
        ),
        (ExchangeDelete(exchange=""), 403, DEFAULT),
        (
            ExchangeDelete(exchange="amq.direct"),
            403,
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
        (ExchangeBind(destination="", source="x"), 403, DEFAULT),
        (ExchangeBind(destination="x", source=""), 403, DEFAULT),
        (ExchangeBind(destination="nope", source="nix"), 404, "NOT_FOUND - no exchange 'nix' in vhost '/'"),
        (ExchangeBind(destination="nope", source="x"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    ],
)
def test_refusals(method: Method, code: int, text: str) -> None:
    """§3.3, §3.4, §3.14 in their order."""
    assert client_with_exchange().refusal(method) == (code, text)


def test_line_breaks_are_deleted() -> None:
    """§3.1."""
    client = World().client()
    client.ask(1, ExchangeDeclare(exchange="a\r\nb"))
    assert client.ask(1, ExchangeDeclare(exchange="ab", passive=True)) == ExchangeDeclareOk()


@pytest.mark.parametrize(
    ("permission", "refused"),
    [(("^$", ".*", ".*"), "new"), ((".*", ".*", "^$"), "new"), ((".*", "^$", ".*"), "alt")],
)
def test_permissions_of_declare(permission: tuple[str, str, str], refused: str) -> None:
    """§3.3: configure; with an alternate exchange read on it and write on the alternate."""
    client = World().client()
    client.world.submit(SetPermission("/", "guest", *permission))
    method = ExchangeDeclare(exchange="new", arguments={"alternate-exchange": longstr("alt")})
    text = f"ACCESS_REFUSED - access to exchange '{refused}' in vhost '/' refused for user 'guest'"
    assert client.refusal(method) == (403, text)


def test_delete() -> None:
    """§3.4: of a missing one it succeeds."""
    client = client_with_exchange()
    assert client.ask(1, ExchangeDelete(exchange="x")) == ExchangeDeleteOk()
    assert client.ask(1, ExchangeDelete(exchange="x")) == ExchangeDeleteOk()
    assert client.refusal(ExchangeDeclare(exchange="x", passive=True))[0] == 404


def test_delete_needs_configure() -> None:
    """§3.4: of a missing one too."""
    client = World().client()
    client.world.submit(SetPermission("/", "guest", "^$", ".*", ".*"))
    text = "ACCESS_REFUSED - access to exchange 'nope' in vhost '/' refused for user 'guest'"
    assert client.refusal(ExchangeDelete(exchange="nope")) == (403, text)


def test_delete_if_unused() -> None:
    """§3.4: 406 while a binding leaves it."""
    client = client_with_exchange()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, QueueBind(queue="q", exchange="x"))
    client.received()
    text = "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    assert client.refusal(ExchangeDelete(exchange="x", if_unused=True)) == (406, text)


def test_bind_and_unbind() -> None:
    """§3.14: messages pass from exchange to exchange; unbinding what is missing succeeds."""
    client = client_with_exchange()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    client.received()
    binding = {"destination": "x", "source": "amq.fanout", "routing_key": "any"}
    assert client.ask(1, ExchangeBind(**binding)) == ExchangeBindOk()  # type: ignore[arg-type]
    client.publish(1, "k", b"1", exchange="amq.fanout")
    for _ in range(2):
        assert client.ask(1, ExchangeUnbind(**binding)) == ExchangeUnbindOk()  # type: ignore[arg-type]
    client.publish(1, "k", b"2", exchange="amq.fanout")
    assert client.world.queue("q").backlog.count == 1


@pytest.mark.parametrize(
    "method",
    [
        ExchangeDelete(exchange="x", nowait=True),
        ExchangeBind(destination="x", source="x", nowait=True),
        ExchangeUnbind(destination="x", source="x", nowait=True),
    ],
)
def test_nowait(method: Method) -> None:
    client = client_with_exchange()
    client.send(1, method)
    assert client.received() == []
