"""Messages that wait in a delayed exchange are looked at and cancelled, in memory and on disk."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from node.admin import delayed
from node.admin.admin import AdminError
from node.admin.delayed import PAGE_MAX, WaitingMessage, browse, cancel
from node.amqp.field_table import Field
from node.amqp.methods import ExchangeDelete
from node.queue.content import decode_content
from tests.kit.world import Client, World
from tests.node.broker.delayed_scene import bound, fabric, fetched, later, publish, waiting

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 10))


def scene(count: int) -> tuple[World, Client]:
    """So many messages with rising numbers; the first ones are due last."""
    world, client = fabric()
    for number in range(1, count + 1):
        publish(client, 100_000 - number * 10, b"%d" % number)
    return world, client


def told(found: list[WaitingMessage]) -> list[tuple[int, bytes]]:
    return [(each.id, decode_content(each.content)[1]) for each in found]


def test_messages_are_shown_in_the_order_in_which_they_came() -> None:
    world, _ = scene(3)
    found, following = run(browse(world.broker, "/", "x", 0, 10))
    assert told(found) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert following is None
    assert {each.envelope.routing_key for each in found} == {"k"}
    properties, _ = decode_content(found[0].content)
    assert properties.headers == {"x-delay": Field("I", 99_990)}
    assert found[0].due_ms - found[2].due_ms == 20
    assert waiting(world) == 3


def test_a_page_ends_where_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number that is asked for, or by their bytes, and over stretches without messages."""
    monkeypatch.setattr(delayed, "_SPAN", 4)
    world, _ = scene(30)
    for number in range(8, 24):
        assert run(cancel(world.broker, "/", "x", number))
    seen: list[int] = []
    following: int | None = 0
    sizes = []
    while following is not None:
        found, following = run(browse(world.broker, "/", "x", following, 3))
        sizes.append(len(found))
        seen += [each.id for each in found]
    assert seen == [*range(1, 8), *range(24, 31)]
    assert max(sizes) == 3
    monkeypatch.setattr(delayed, "PAGE_MAX_BYTES", 1)
    found, following = run(browse(world.broker, "/", "x", 5, 10))
    assert [each.id for each in found] == [5]
    assert following == 6


def test_a_page_has_a_largest_size() -> None:
    world, _ = scene(PAGE_MAX + 1)
    found, following = run(browse(world.broker, "/", "x", 0, PAGE_MAX + 1))
    assert len(found) == PAGE_MAX
    assert following == PAGE_MAX + 1


def test_a_cancelled_message_does_not_go_out() -> None:
    """The others do, in order."""
    world, client = scene(5)
    assert run(cancel(world.broker, "/", "x", 2))
    assert not run(cancel(world.broker, "/", "x", 2))
    assert not run(cancel(world.broker, "/", "x", 99))
    assert waiting(world) == 4
    later(world, 100.0)
    assert fetched(client) == [b"5", b"4", b"3", b"1"]
    assert not run(cancel(world.broker, "/", "x", 1)), "it went out"


def test_the_first_to_be_due_can_be_cancelled() -> None:
    """The timer that was set for it does no harm."""
    world, client = scene(2)
    assert run(cancel(world.broker, "/", "x", 2))
    later(world, 100.0)
    assert fetched(client) == [b"1"]


def test_what_is_not_here_is_refused() -> None:
    """No such exchange, one of another type, one that is gone."""
    world, client = scene(1)
    bound(client, "r")
    for vhost, exchange in (("/", "amq.direct"), ("/", "nope"), ("nope", "x")):
        for asked in (browse(world.broker, vhost, exchange, 0, 1), cancel(world.broker, vhost, exchange, 1)):
            with pytest.raises(AdminError) as caught:
                run(asked)  # type: ignore[arg-type]
            assert caught.value.kind == "unavailable"
    client.ask(1, ExchangeDelete(exchange="x"))
    with pytest.raises(AdminError):
        run(cancel(world.broker, "/", "x", 1))


def test_a_busy_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator gets an answer even if it stays busy."""
    world, _ = scene(1)
    queue = world.queue("amq.delayed.x")
    answers = iter((False, False))
    really = queue.withdraw  # type: ignore[attr-defined]

    def sometimes(seq: int, done: Any) -> bool:
        return next(answers, None) is None and really(seq, done)

    monkeypatch.setattr(queue, "withdraw", sometimes)
    monkeypatch.setattr(delayed, "BUSY_S", 0.0)
    assert run(cancel(world.broker, "/", "x", 1))
    monkeypatch.setattr(queue, "withdraw", lambda seq, done: False)
    monkeypatch.setattr(delayed, "WAIT_S", 0.01)
    with pytest.raises(AdminError, match="no answer"):
        run(cancel(world.broker, "/", "x", 1))
