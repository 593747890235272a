"""Lines of the log as messages. Keys and properties are those of RabbitMQ 3.10.8, live."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from node.amqp.field_table import longstr
from node.amqp.methods import BasicConsume, BasicDeliver, QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.config.config import ExchangeLog, LogFormat, LogLevel, LogOptions
from node.io import log_exchange
from node.io.log_exchange import LOG_EXCHANGE, TURN_LINES, LogExchange
from node.log.log import category_logger, process_logger
from tests.kit.world import Received, World

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00:00 \[(\w+)\] (<\S+>) (.*)\n", re.DOTALL)


class Log:
    """A log whose lines go to the exchange, and a client that gets them. The loop's turns are taken by hand."""

    def __init__(self, options: ExchangeLog | None = None, **categories: LogLevel) -> None:
        self.world = World()
        self.calls: list[Callable[[], None]] = []
        options_ = LogOptions(exchange=options or ExchangeLog(), category_levels=categories)
        self.exchange = LogExchange(options_, "/", self.calls.append)
        self.world.submit(self.exchange.declaration)
        self.watcher = self.world.client()
        self.watcher.send(1, QueueDeclare(queue="lines"))
        self.watcher.send(1, QueueBind(queue="lines", exchange=LOG_EXCHANGE, routing_key="#"))
        self.watcher.send(1, BasicConsume(queue="lines", consumer_tag="w", no_ack=True))
        self.watcher.received()
        self.exchange.start(self.world.broker)

    def turn(self) -> None:
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def take(self) -> list[Received]:
        """Return what came, after as many turns as it takes."""
        while self.calls:
            self.turn()
        return self.watcher.received()


@pytest.fixture(autouse=True)
def everything_is_logged() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(LogLevel.DEBUG)
    yield
    root.setLevel(level)


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.exchange.stop()


def test_a_line(log: Log) -> None:
    process_logger("connection", 7).warning("first\nsecond")
    [copy] = log.take()
    assert isinstance(copy.method, BasicDeliver)
    assert (copy.method.exchange, copy.method.routing_key) == (LOG_EXCHANGE, "warning")
    assert copy.properties is not None
    timestamp = copy.properties.timestamp
    assert timestamp is not None
    node = log.world.broker.settings.node_name
    assert copy.properties == Properties(
        content_type="text/plain", headers={"node": longstr(node)}, timestamp=timestamp
    )
    lines = copy.body.decode().splitlines(keepends=True)
    matches = [LINE.fullmatch(line) for line in lines]
    assert [match.groups() for match in matches if match] == [
        ("warning", "<0.7.0>", "first"),
        ("warning", "<0.7.0>", "second"),
    ]


def test_levels_are_keys(log: Log) -> None:
    for level in (LogLevel.INFO, LogLevel.NOTICE, LogLevel.WARNING, LogLevel.ERROR, LogLevel.CRITICAL):
        category_logger().log(level, "x")
    keys = [each.method.routing_key for each in log.take() if isinstance(each.method, BasicDeliver)]
    assert keys == ["info", "notice", "warning", "error", "critical"]


@pytest.mark.parametrize(
    ("level", "categories", "expected"),
    [
        (LogLevel.ERROR, {}, [b"error"]),
        (LogLevel.INFO, {"queue": LogLevel.ERROR}, [b"error", b"info"]),
        (LogLevel.DEBUG, {}, [b"debug", b"error", b"info"]),
    ],
)
def test_only_what_the_output_takes(
    level: LogLevel, categories: dict[str, LogLevel], expected: list[bytes]
) -> None:
    log = Log(ExchangeLog(level=level), **categories)
    category_logger("queue").debug("debug")
    category_logger("queue").error("error")
    category_logger("connection").info("info")
    found = [each.body.split()[-1] for each in log.take()]
    log.exchange.stop()
    assert found == expected


def test_json() -> None:
    log = Log(ExchangeLog(format=LogFormat(json=True)))
    category_logger("queue").info("text")
    [copy] = log.take()
    log.exchange.stop()
    assert copy.properties is not None
    assert copy.properties.content_type == "application/json"
    said: dict[str, Any] = json.loads(copy.body)
    assert (said["msg"], said["domain"]) == ("text", "rabbitmq.queue")


def test_lines_wait_for_the_loop(log: Log) -> None:
    """However many come, the loop is asked once; a turn publishes some of them."""
    for number in range(2 * TURN_LINES + 1):
        category_logger().info("%d", number)
    assert len(log.calls) == 1
    for count in (TURN_LINES, TURN_LINES, 1):
        log.turn()
        assert len(log.watcher.received()) == count
    assert log.calls == []
    category_logger().info("again")
    assert len(log.take()) == 1


def test_what_waits_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are lost."""
    monkeypatch.setattr(log_exchange, "WAITING_MAX", 5)
    log.exchange.stop()
    small = Log()
    for number in range(8):
        category_logger().info("%d", number)
    assert [each.body.split()[-1] for each in small.take()] == [b"3", b"4", b"5", b"6", b"7"]
    small.exchange.stop()


def test_publishing_says_nothing_of_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line logged while another is published is not published, as it would bring the next, and so on."""
    put = log.world.broker.intake.put

    def noisy(*what: Any) -> Any:
        category_logger("queue").error("noise")
        return put(*what)

    monkeypatch.setattr(log.world.broker.intake, "put", noisy)
    category_logger().info("one")
    assert len(log.take()) == 1
    assert log.calls == []


def test_a_fault_in_publishing_ends_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop logs the fault, and that line must not bring the next one."""

    def broken(*what: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(log.world.broker.intake, "put", broken)
    category_logger().info("one")
    with pytest.raises(ZeroDivisionError):
        log.turn()
    category_logger().error("the fault")
    assert log.calls == []


def test_nobody_listens() -> None:
    log = Log()
    log.watcher.lose()
    log.world.settle()
    log.exchange.stop()
    category_logger().info("after the end")
    assert log.calls == []


def test_a_loop_that_is_closed() -> None:
    def closed(call: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    world = World()
    exchange = LogExchange(LogOptions(exchange=ExchangeLog()), "/", closed)
    exchange.start(world.broker)
    category_logger().info("x")
    exchange.stop()
