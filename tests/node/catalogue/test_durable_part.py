"""Commands are logged if they change what a restart keeps (amqp-behaviour §3.5, §7.6)."""

from typing import Any

from hypothesis import example, given, settings

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    ClearPolicy,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    PutVhost,
    Refused,
    SetPolicy,
    Unbind,
)
from node.catalogue.durable_part import durable_changes
from tests.kit.commands_at_random import BEGINNING, build, durable_part, histories, topologies


def apply(catalogue: Catalogue, command: Command[Any]) -> list[Command[Any]]:
    """Apply a command; what is logged of it."""
    result = catalogue.apply(command)
    return durable_changes(command, result, catalogue.take_events(), catalogue)


def exchange(name: str, *, durable: bool = True, auto_delete: bool = True) -> DeclareExchange:
    return DeclareExchange("v", name, "direct", durable=durable, auto_delete=auto_delete)


def queue(name: str, *, durable: bool = True, owner: str | None = None) -> DeclareQueue:
    return DeclareQueue("v", name, name, durable=durable, exclusive_owner=owner)


def bind(source: str, destination: str, *, to_exchange: bool = False) -> Bind:
    return Bind("v", source, "exchange" if to_exchange else "queue", destination, "k")


def unbind(source: str, destination: str, *, to_exchange: bool = False) -> Unbind:
    return Unbind("v", source, "exchange" if to_exchange else "queue", destination, "k")


@settings(max_examples=200, deadline=None)
@given(histories)
def test_what_is_logged_replayed_gives_the_durable_part(history: list[Command[Any]]) -> None:
    """After each command, whatever transient objects took part."""
    live, replayed = build(BEGINNING), build(BEGINNING)
    for command in history:
        for change in apply(live, command):
            assert not isinstance(replayed.apply(change), Refused), change
        assert durable_part(replayed) == durable_part(live)


@settings(max_examples=200, deadline=None)
@given(topologies)
@example(
    [exchange("a"), queue("a"), bind("a", "a"), queue("b", durable=False), bind("a", "b"), unbind("a", "a")]
)
def test_exchanges_queues_and_bindings(history: list[Command[Any]]) -> None:
    """Replaying the log of any history gives its durable part, and what changes nothing durable writes nothing."""
    live, replayed = build(BEGINNING), build(BEGINNING)
    for command in history:
        before = durable_part(live)
        changes = apply(live, command)
        for change in changes:
            replayed.apply(change)
        after = durable_part(live)
        assert durable_part(replayed) == after
        assert bool(changes) == (before != after)


def test_most_commands_are_logged_as_they_are() -> None:
    catalogue = build([PutVhost("v")])
    for command in (
        exchange("x"),
        queue("q"),
        bind("x", "q"),
        SetPolicy("v", "p", "^nothing yet", {"max-length": 1}),
        ClearPolicy("v", "p"),
        PutVhost("v", "again"),
    ):
        assert apply(catalogue, command) == [command]


def test_what_had_no_effect_is_not_logged() -> None:
    """Refused, there already, not there, or about what no restart keeps."""
    catalogue = build([PutVhost("v"), exchange("x"), queue("q"), bind("x", "q")])
    for command in (
        exchange("x"),
        queue("q"),
        bind("x", "q"),
        bind("x", "nope"),
        unbind("x", "nope"),
        DeleteQueue("v", "nope"),
        DeleteUser("nope"),
        ClearPolicy("v", "nope"),
        queue("transient", durable=False),
        queue("exclusive", owner="me"),
        bind("x", "exclusive"),
        unbind("x", "exclusive"),
        DeleteQueue("v", "exclusive"),
    ):
        assert apply(catalogue, command) == []


def test_bindings_that_go_with_an_end_are_not_logged_one_by_one() -> None:
    catalogue = build([PutVhost("v"), exchange("x", auto_delete=False), queue("q"), bind("x", "q")])
    assert apply(catalogue, DeleteQueue("v", "q")) == [DeleteQueue("v", "q", "q")]
    catalogue = build([PutVhost("v"), exchange("x"), queue("q"), bind("x", "q")])
    assert apply(catalogue, DeleteExchange("v", "x", if_unused=False)) == [DeleteExchange("v", "x")]


def test_a_transient_queue_takes_a_durable_exchange_with_it() -> None:
    """The command is about what is not kept, and what it leads to is logged."""
    for last in (DeleteQueue("v", "t"), unbind("x", "t")):
        catalogue = build([PutVhost("v"), exchange("x"), queue("t", durable=False), bind("x", "t")])
        assert apply(catalogue, last) == [DeleteExchange("v", "x")]


def test_a_transient_binding_keeps_a_durable_exchange() -> None:
    """Without it the exchange would go, and one that leads to it alone: they are made anew."""
    catalogue = build(
        [
            PutVhost("v"),
            exchange("upstream"),
            exchange("x"),
            bind("upstream", "x", to_exchange=True),
            queue("q"),
            queue("t", durable=False),
            bind("x", "q"),
            bind("x", "t"),
        ]
    )
    assert apply(catalogue, DeleteQueue("v", "q")) == [
        DeleteQueue("v", "q", "q"),
        exchange("x"),
        exchange("upstream"),
        bind("upstream", "x", to_exchange=True),
    ]
