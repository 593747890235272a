"""LocalLog: applies at once, in order (architecture §1: a single node is a cluster of one)."""

from collections.abc import Sequence

from node.amqp.constants import ReplyCode
from node.broker.catalogue import Catalogue
from node.broker.commands import (
    DeclareQueue,
    DeleteQueue,
    PutVhost,
    QueueDeclared,
    Refused,
)
from node.broker.events import Event, QueueCreated, QueueDeleted
from node.broker.replicated_log import LocalLog, ReplicatedLog


def test_reaction_comes_before_the_answer() -> None:
    seen: list[object] = []
    catalogue = Catalogue()
    log: ReplicatedLog = LocalLog(catalogue, seen.extend)
    log.submit(PutVhost("/"))
    seen.clear()
    log.submit(DeclareQueue("/", "q", "1"), seen.append)
    created, declared = seen
    assert isinstance(created, QueueCreated)
    assert declared == QueueDeclared(created.queue, created=True)


def test_a_refusal_is_an_answer_without_reaction() -> None:
    seen: list[object] = []
    log = LocalLog(Catalogue(), seen.extend)
    log.submit(DeclareQueue("nope", "q", "1"), seen.append)
    assert seen == [Refused(ReplyCode.NOT_ALLOWED, "vhost nope not found")]


def test_commands_from_within_a_reaction_wait_for_their_turn() -> None:
    """Apply, react, answer: never interleaved, and all done when the outermost submit returns."""
    story: list[str] = []

    def react(events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, QueueCreated):
                story.append("created")
                log.submit(DeleteQueue("/", "q"), lambda _: story.append("delete answered"))
            if isinstance(event, QueueDeleted):
                story.append("deleted")

    log = LocalLog(Catalogue(), react)
    log.submit(PutVhost("/"))
    log.submit(DeclareQueue("/", "q", "1"), lambda _: story.append("declare answered"))
    assert story == ["created", "declare answered", "deleted", "delete answered"]


def test_a_command_from_within_an_answer_is_applied_before_submit_returns() -> None:
    catalogue = Catalogue()
    log = LocalLog(catalogue, lambda _: None)
    log.submit(PutVhost("/"), lambda _: log.submit(DeclareQueue("/", "q", "1")))
    assert catalogue.queue("/", "q") is not None
