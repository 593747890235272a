"""The durable part of a catalogue as commands (amqp-behaviour §7.6)."""

from hypothesis import given, settings

from node.amqp.field_table import long
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    PutUser,
    PutVhost,
    Refused,
    SetParameter,
    SetPermission,
    SetPolicy,
)
from node.catalogue.snapshot import snapshot
from tests.kit.commands_at_random import BEGINNING, build, durable_part, histories


@settings(max_examples=150, deadline=None)
@given(histories)
def test_applied_to_an_empty_catalogue_it_gives_the_durable_part(history: list[Command[object]]) -> None:
    """Whatever came before; no command is refused, and none is there twice."""
    catalogue = build(BEGINNING + history)
    commands = list(snapshot(catalogue))
    rebuilt = Catalogue()
    for command in commands:
        assert not isinstance(rebuilt.apply(command), Refused), command
    assert durable_part(rebuilt) == durable_part(catalogue)
    assert len(set(map(repr, commands))) == len(commands)
    assert list(map(repr, snapshot(rebuilt))) == list(map(repr, commands)), "one of itself is the same"
    for vhost in rebuilt.vhosts():
        assert all(queue.durable for queue in rebuilt.queues(vhost.name))


def test_an_empty_catalogue_has_no_commands() -> None:
    assert list(snapshot(Catalogue())) == []


def test_a_new_vhost_is_one_command() -> None:
    """A new vhost is one command in a snapshot, which brings its seven exchanges."""
    assert list(snapshot(build([PutVhost("/")]))) == [PutVhost("/")]


def test_who_made_a_vhost_is_kept() -> None:
    """As its exchanges say."""
    made = build([PutVhost("v", declared_by="anna"), PutVhost("v", "described later", declared_by="otto")])
    [command] = snapshot(made)
    assert command == PutVhost("v", "described later", declared_by="anna")
    rebuilt = build([command])
    assert {exchange.declared_by for exchange in rebuilt.exchanges("v")} == {"anna"}


def test_transient_and_exclusive_objects_are_not_in_it() -> None:
    """Transient and exclusive objects and their bindings are left out; a queue keeps its uid and arguments."""
    kept: list[Command[object]] = [
        PutVhost("/"),
        DeclareExchange("/", "x", "topic", durable=True),
        DeclareQueue("/", "kept", "00ff", durable=True, arguments={"x-max-length": long(5)}, type="quorum"),
        Bind("/", "x", "queue", "kept", "k", {"a": long(1)}),
    ]
    gone: list[Command[object]] = [
        DeclareExchange("/", "t", "fanout"),
        DeclareQueue("/", "transient", "1"),
        DeclareQueue("/", "exclusive", "2", durable=True, exclusive_owner="me"),
        Bind("/", "x", "queue", "transient", "k"),
        Bind("/", "x", "queue", "exclusive", "k"),
        Bind("/", "x", "exchange", "t", "k"),
        Bind("/", "t", "queue", "kept", "k"),
    ]
    catalogue = build(kept + gone)
    assert len(list(catalogue.bindings("/"))) == 3 + 5
    assert list(snapshot(catalogue)) == kept


def test_more_queues_than_a_limit_allows_come_back() -> None:
    """A limit that was lowered later refuses none of those that were there."""
    catalogue = build(
        [
            PutVhost("/"),
            *(DeclareQueue("/", name, name, durable=True) for name in "abc"),
            SetParameter("/", "vhost-limits", "limits", {"max-queues": 1}),
        ]
    )
    assert len(build(list(snapshot(catalogue))).queues("/")) == 3


def test_changes_after_it_was_taken_are_not_in_it() -> None:
    """A snapshot makes its commands as they are asked for, but of what was there when it was taken."""
    history: list[Command[object]] = [
        PutVhost("/"),
        PutUser("u", "h", "a"),
        SetPermission("/", "u", "", "", ""),
        SetPolicy("/", "p", ".*", {"max-length": 1}),
        DeclareQueue("/", "a", "1", durable=True),
        Bind("/", "amq.direct", "queue", "a", "k"),
    ]
    catalogue = build(history)
    commands = snapshot(catalogue)
    assert next(commands) == history[0]
    for command in (
        DeleteQueue("/", "a"),
        DeclareQueue("/", "b", "2", durable=True),
        Bind("/", "amq.direct", "queue", "b", "k"),
    ):
        catalogue.apply(command)
    assert durable_part(build(history)) == durable_part(build([history[0], *commands]))
