"""Dead letters go back to the queues in which they died: which of them, how many, how fast, and what stays."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from node.admin.direct_client import DirectClient
from node.admin.replay import Choice, Replayed, newest_death, replay
from node.amqp.field_table import Field, Table, array, longstr, table
from node.amqp.methods import BasicGet, BasicGetOk, BasicNack, QueueDeclare
from node.amqp.properties import Properties
from node.management.browsing import BROWSED_MAX, browse, would_replay
from tests.kit.world import Client, World

T = TypeVar("T")
PAUSE_S = 0.001


def death(queue: str, reason: str = "rejected") -> Field:
    return table({"queue": longstr(queue), "reason": longstr(reason)})


class Bench:
    """A broker with the queues a and b, whose rejected messages go to `dead`, and a client of each request."""

    def __init__(self) -> None:
        self.world = World()
        self.client: Client = self.world.client(1)
        self.client.ask(1, QueueDeclare(queue="dead"))
        for name in ("a", "b"):
            self.declare(name)

    def declare(self, name: str, **more: Field) -> None:
        arguments: Table = {
            "x-dead-letter-exchange": longstr(""),
            "x-dead-letter-routing-key": longstr("dead"),
            **{key.replace("_", "-"): value for key, value in more.items()},
        }
        self.client.ask(1, QueueDeclare(queue=name, arguments=arguments))

    def kill(self, name: str, *bodies: bytes, **headers: Field) -> None:
        """Have messages rejected in a queue."""
        self.client.publish(1, name, *bodies, properties=Properties(headers=dict(headers)))
        for _ in bodies:
            self.client.send(1, BasicGet(queue=name))
            (got,) = self.client.received()
            assert isinstance(got.method, BasicGetOk)
            self.client.send(1, BasicNack(got.method.delivery_tag, requeue=False))
        self.world.settle()

    def ready(self, name: str) -> int:
        return self.world.queue(name).backlog.count

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work of an operator while the broker's turns go on."""

        async def running() -> T:
            task = asyncio.ensure_future(work)
            while not task.done():
                self.world.settle()
                await asyncio.sleep(0)
            self.world.settle()
            return task.result()

        return asyncio.run(running())

    def replay(self, choice: Choice | None = None, count: int = 1000, rate: float | None = None) -> Replayed:
        async def work() -> Replayed:
            async with DirectClient(self.world.broker, "guest", "/", clock=lambda: self.world.now) as client:
                return await replay(
                    client,
                    "guest",
                    "dead",
                    choice or Choice(),
                    count=count,
                    rate=rate,
                    clock=lambda: self.world.now,
                )

        return self.run(work())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_all_go_back_to_where_they_died(bench: Bench) -> None:
    bench.kill("a", b"1", b"2")
    bench.kill("b", b"3")
    assert bench.ready("dead") == 3
    result = bench.replay()
    assert result.as_json() == {
        "looked_at": 3,
        "replayed": 3,
        "to": {"a": 2, "b": 1},
        "not_chosen": 0,
        "failed": {},
        "is_empty": True,
    }
    assert (bench.ready("dead"), bench.ready("a"), bench.ready("b")) == (0, 2, 1)


def test_those_of_one_queue_or_reason_or_header(bench: Bench) -> None:
    for number, choice in enumerate(
        (Choice(queue="a"), Choice(header="kind", value="x"), Choice(header="kind"))
    ):
        bench = Bench()
        bench.kill("a", b"1", kind=longstr("x"))
        bench.kill("a", b"2", kind=longstr("y"))
        bench.kill("b", b"3")
        result = bench.replay(choice)
        assert result.replayed.total() == (2, 1, 2)[number]
        assert (result.not_chosen, bench.ready("dead")) == ((1, 2, 1)[number],) * 2
    assert bench.replay(Choice(reason="expired")).replayed.total() == 0
    assert bench.replay(Choice(reason="rejected")).replayed.total() == 1


def test_no_more_than_asked_for(bench: Bench) -> None:
    bench.kill("a", b"1", b"2", b"3")
    result = bench.replay(count=2)
    assert (result.replayed.total(), result.is_empty, bench.ready("dead")) == (2, False, 1)


def test_a_message_that_is_no_dead_letter_stays(bench: Bench) -> None:
    bench.client.publish(1, "dead", b"plain")
    result = bench.replay()
    assert (result.replayed.total(), result.not_chosen, bench.ready("dead")) == (0, 1, 1)


def test_a_letter_whose_queue_is_gone_or_refuses_stays(bench: Bench) -> None:
    from node.amqp.field_table import long
    from node.catalogue.commands import DeleteQueue

    bench.declare("full", x_max_length=long(1), x_overflow=longstr("reject-publish"))
    bench.kill("full", b"1")
    bench.client.publish(1, "full", b"2")
    bench.kill("a", b"3")
    bench.world.submit(DeleteQueue("/", "a"))
    result = bench.replay()
    assert (dict(result.failed), bench.ready("dead")) == ({"full": 1, "a": 1}, 2)


def test_a_rate(bench: Bench) -> None:
    """The times between two messages; the request ends before it takes too long."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        bench.world.now += seconds

    bench.kill("a", *[b"%d" % number for number in range(10)])
    patch = pytest.MonkeyPatch()
    real = asyncio.sleep
    patch.setattr("node.admin.replay.asyncio.sleep", lambda seconds: sleep(seconds) if seconds else real(0))
    try:
        assert bench.replay(count=5, rate=2.0).replayed.total() == 5
        assert slept == [0.5] * 4
        slept.clear()
        assert bench.replay(rate=0.02).replayed.total() == 1
    finally:
        patch.undo()


def test_its_copies_do_not_come_back(bench: Bench) -> None:
    """CC would route the message to further queues once more."""
    bench.client.ask(1, QueueDeclare(queue="copy"))
    bench.kill("a", b"1", CC=array([longstr("copy")]), **{"x-mine": longstr("v")})
    assert bench.ready("copy") == 1
    bench.replay()
    assert bench.ready("copy") == 1
    bench.client.send(1, BasicGet(queue="a", no_ack=True))
    (got,) = bench.client.received()
    assert got.properties is not None
    assert got.properties.headers is not None
    assert got.properties.headers["x-mine"] == longstr("v")
    assert "x-death" in got.properties.headers


@pytest.mark.parametrize(
    "deaths", [longstr("x"), array([]), array([longstr("x")]), array([table({"queue": longstr("q")})])]
)
def test_headers_that_are_no_deaths(deaths: Field) -> None:
    assert newest_death({"x-death": deaths}) is None


def test_the_newest_death_counts() -> None:
    found = newest_death({"x-death": array([death("new", "expired"), death("old")])})
    assert found is not None
    assert (found.queue, found.reason) == ("new", "expired")


# --- looking, without a change ---


def test_browsing_changes_nothing(bench: Bench) -> None:
    bench.client.publish(1, "a", b"1", b"\xff", b"3" * 10, properties=Properties(type="t"))
    bench.world.settle()
    before = bench.world.queue("a").counters.get
    found = bench.run(browse(bench.world.broker, "/", "a", first=1, count=10, cut=5, encoding="auto"))
    assert found is not None
    assert [row["payload"] for row in found["messages"]] == ["1", "/w==", "33333"]
    assert [row["number"] for row in found["messages"]] == [1, 2, 3]
    assert found["messages"][2]["payload_bytes"] == 10
    assert found["messages"][0]["properties"]["type"] == "t"
    assert found["next"] is None
    assert bench.world.queue("a").counters.get == before
    bench.client.send(1, BasicGet(queue="a"))
    (got,) = bench.client.received()
    assert isinstance(got.method, BasicGetOk)
    assert (got.body, got.method.redelivered) == (b"1", False)


def test_browsing_page_by_page(bench: Bench) -> None:
    bench.client.publish(1, "a", *[b"%d" % number for number in range(1, 8)])
    bench.world.settle()
    seen: list[str] = []
    first: int | None = 1
    while first is not None:
        found = bench.run(browse(bench.world.broker, "/", "a", first=first, count=3, cut=9, encoding="auto"))
        assert found is not None
        seen += [row["payload"] for row in found["messages"]]
        first = found["next"]
    assert seen == [str(number) for number in range(1, 8)]


def test_what_clients_have_is_left_out(bench: Bench) -> None:
    bench.client.publish(1, "a", b"1", b"2")
    bench.client.send(1, BasicGet(queue="a"))
    bench.world.settle()
    found = bench.run(
        browse(bench.world.broker, "/", "a", first=1, count=BROWSED_MAX, cut=9, encoding="base64")
    )
    assert found is not None
    assert [row["payload"] for row in found["messages"]] == ["Mg=="]


def test_a_queue_that_is_not_here(bench: Bench) -> None:
    for vhost, name in (("/", "nope"), ("nope", "a")):
        assert (
            bench.run(browse(bench.world.broker, vhost, name, first=1, count=1, cut=9, encoding="auto"))
            is None
        )
        assert bench.run(would_replay(bench.world.broker, vhost, name, Choice())) is None


def test_a_dry_run(bench: Bench) -> None:
    bench.kill("a", b"1", b"2")
    bench.kill("b", b"3")
    bench.client.publish(1, "dead", b"plain")
    bench.world.settle()
    found = bench.run(would_replay(bench.world.broker, "/", "dead", Choice(queue="a")))
    assert found == {
        "looked_at": 4,
        "replayed": 2,
        "to": {"a": 2},
        "not_chosen": 2,
        "failed": {},
        "is_empty": True,
    }
    assert bench.ready("dead") == 4
