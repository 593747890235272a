"""The logs of nodes without peers (docs/internals/catalogue.md, "Three logs")."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    PutVhost,
    QueueDeclared,
    Refused,
)
from node.catalogue.events import Event, QueueCreated, QueueDeleted
from node.catalogue.replicated_log import NOT_WRITTEN, DurableLog, LocalLog, ReplicatedLog
from tests.kit.commands_at_random import BEGINNING, build, durable_part, histories

# --- LocalLog: applies at once, in order ------------------------------------------------------------------


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


# --- DurableLog -------------------------------------------------------------------------------------------


class Pages:
    """A command log in memory: `sync` makes the oldest change safe."""

    def __init__(self) -> None:
        self.changes: list[list[Command[Any]]] = []
        self._waiting: deque[Callable[[bool], None]] = deque()

    def append(self, commands: Sequence[Command[Any]], on_safe: Callable[[bool], None]) -> None:
        self.changes.append(list(commands))
        self._waiting.append(on_safe)

    def sync(self, *, is_safe: bool = True) -> None:
        self._waiting.popleft()(is_safe)


class Story:
    """A durable log with `/`, and what happens: appended, reactions, answers."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.pages = Pages()
        self.catalogue = build([PutVhost("/")])
        self.log = DurableLog(self.catalogue, self._react, self.pages)

    def _react(self, events: Sequence[Event]) -> None:
        self.told += [(type(event).__name__, len(self.pages.changes)) for event in events]

    def submit(self, command: Command[Any], name: str = "answer") -> None:
        self.log.submit(command, lambda result: self.told.append((name, result)))

    def take(self) -> list[object]:
        told, self.told = self.told, []
        return told


DURABLE = DeclareQueue("/", "d", "1", durable=True)
TRANSIENT = DeclareQueue("/", "t", "2")


def declared(catalogue: Catalogue, name: str, *, created: bool = True) -> QueueDeclared:
    record = catalogue.queue("/", name)
    assert record is not None
    return QueueDeclared(record, created=created)


def test_a_durable_change_is_answered_when_it_is_synced() -> None:
    """Applied at once, written before anybody reacts to it, answered later."""
    story = Story()
    story.submit(DURABLE)
    assert story.pages.changes == [[DURABLE]]
    assert story.take() == [("QueueCreated", 1)]
    story.pages.sync()
    assert story.take() == [("answer", declared(story.catalogue, "d"))]


def test_changes_of_nothing_durable_are_answered_at_once() -> None:
    """A change of nothing durable is answered at once, also while durable ones wait; nothing is written."""
    story = Story()
    story.submit(DURABLE)
    story.take()
    story.submit(TRANSIENT)
    assert story.take() == [("QueueCreated", 1), ("answer", declared(story.catalogue, "t"))]
    assert len(story.pages.changes) == 1


def test_that_there_is_nothing_to_change_rests_on_what_is_under_way() -> None:
    """Refused, there already, gone already: said when what may have made it so is synced."""
    story = Story()
    story.submit(DURABLE)
    story.submit(DURABLE)
    story.submit(Bind("/", "amq.direct", "queue", "nope", ""))
    story.submit(DeleteQueue("/", "nope"))
    story.take()
    story.pages.sync()
    created, again, refused, missing = story.take()
    assert created == ("answer", declared(story.catalogue, "d"))
    assert again == ("answer", declared(story.catalogue, "d", created=False))
    assert isinstance(refused, tuple)
    assert isinstance(refused[1], Refused)
    assert missing == ("answer", None)
    assert len(story.pages.changes) == 1


def test_nobody_is_told_of_a_durable_queue_that_is_not_synced() -> None:
    """An equal declare waits for the changes under way, and for no more; without any it is answered at once."""
    story = Story()
    story.submit(DURABLE, "first")
    story.submit(DURABLE, "second")
    story.submit(DeclareExchange("/", "x", "direct", durable=True), "third")
    story.take()
    story.pages.sync()
    names = [told[0] for told in story.take() if isinstance(told, tuple)]
    assert names == ["first", "second"]
    story.pages.sync()
    story.take()
    story.submit(DURABLE)
    assert story.take() == [("answer", declared(story.catalogue, "d", created=False))]
    assert len(story.pages.changes) == 2


def test_a_broken_disk() -> None:
    """541 for durable changes and for who is told of them; the rest goes on."""
    story = Story()
    story.submit(DURABLE)
    story.submit(DURABLE)
    story.take()
    story.pages.sync(is_safe=False)
    assert story.take() == [("answer", NOT_WRITTEN)] * 2
    assert NOT_WRITTEN.error.reply_text == "INTERNAL_ERROR - metadata could not be written to disk"
    story.submit(TRANSIENT)
    assert story.take()[1:] == [("answer", declared(story.catalogue, "t"))]


def test_commands_from_within_a_late_answer_wait_for_their_turn() -> None:
    """Commands submitted within a late answer wait for their turn, as within an immediate one."""
    story = Story()
    catalogue, told = story.catalogue, story.told

    def on_applied(_: object) -> None:
        story.log.submit(TRANSIENT, lambda _: told.append("inner"))
        told.append("outer")

    story.log.submit(DURABLE, on_applied)
    story.log.submit(DURABLE, lambda _: told.append("second"))
    story.pages.sync()
    assert told == [("QueueCreated", 1), "outer", "second", ("QueueCreated", 1), "inner"]
    assert catalogue.queue("/", "t") is not None


def test_a_durable_command_from_within_a_reaction() -> None:
    """A durable command from within a reaction waits for its turn, and is written then."""
    pages = Pages()

    def react(events: Sequence[Event]) -> None:
        if any(isinstance(event, QueueCreated) for event in events):
            log.submit(DeleteQueue("/", "d"))

    log = DurableLog(build([PutVhost("/")]), react, pages)
    log.submit(DURABLE)
    assert pages.changes == [[DURABLE], [DeleteQueue("/", "d", "1")]]


def test_replay_writes_nothing() -> None:
    story = Story()
    story.log.replay(DURABLE, story.told.append)
    assert story.pages.changes == []
    assert story.told == [("QueueCreated", 0), declared(story.catalogue, "d")]


@settings(max_examples=100, deadline=None)
@given(histories, st.data())
def test_answers_come_once_and_in_the_order_of_the_log(
    history: list[Command[Any]], data: st.DataObject
) -> None:
    """Each submitter waits for its answer; what is answered as done is in the pages that are synced."""
    pages, catalogue = Pages(), build(BEGINNING)
    log = DurableLog(catalogue, lambda _: None, pages)
    answered: list[int] = []
    written: list[int] = []
    synced = 0
    for number, command in enumerate(history):
        log.submit(command, lambda _, number=number: answered.append(number))  # type: ignore[misc]
        if len(pages.changes) > len(written):
            written.append(number)
            assert number not in answered
        while synced < len(written) and data.draw(st.booleans()):
            pages.sync()
            synced += 1
        if synced == len(written):
            safe = [command for change in pages.changes for command in change]
            assert durable_part(build(BEGINNING + safe)) == durable_part(catalogue)
            assert sorted(answered) == list(range(number + 1))
    for _ in written[synced:]:
        pages.sync()
    assert sorted(answered) == list(range(len(history)))
    assert [number for number in answered if number in written] == written
