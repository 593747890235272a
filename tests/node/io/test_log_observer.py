"""Lines of the log about what happens in the broker."""

import logging

import pytest

from node.catalogue.records import QueueRecord
from node.client.observer import Level, MirrorEvent
from node.io import log_observer
from node.io.log_observer import LogObserver
from tests.kit.world import World


@pytest.mark.parametrize(
    ("level", "number"), [("info", logging.INFO), ("warning", logging.WARNING), ("error", logging.ERROR)]
)
def test_what_happens_to_a_mirrored_queue(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, level: Level, number: int
) -> None:
    """On one line, whatever the queue is called."""
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        text = "Mirrored queue 'a\nb' in vhost '/': Promoting mirror <n@h.1.2> to leader"
        LogObserver().mirror_event(MirrorEvent(level, "promotion", "/", "a\nb", text))
    [record] = caplog.records
    assert record.levelno == number
    assert record.getMessage() == (
        "Mirrored queue 'a\\nb' in vhost '/': Promoting mirror <n@h.1.2> to leader"
    )
    assert record.name.endswith(".mirroring")


def test_strangers_write_so_many_lines_and_no_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of omitted lines is told when a new minute begins; users who have logged in are always told of."""
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    monkeypatch.setattr(log_observer, "STRANGERS_LINES_MAX", 10)
    world, observer = World(), LogObserver()
    user, stranger = world.client().connection, world.connect().connection
    with caplog.at_level(logging.DEBUG):
        for _ in range(30):
            observer.accepted(stranger)
            observer.handshake_timed_out(stranger)
        assert len(caplog.records) == 10
        observer.opened(user)
        assert len(caplog.records) == 11
        world.broker.now += log_observer.STRANGERS_WINDOW_S
        observer.accepted(stranger)
    told, last = caplog.records[-2:]
    assert told.getMessage().startswith("50 lines about clients that had not logged in were left out")
    assert last.getMessage().startswith("accepting AMQP connection")


@pytest.mark.parametrize(
    ("protocol", "shown"),
    [("AMQP 0-9-1", "AMQP"), ("MQTT", "MQTT"), ("MQTT 3.1.1", "MQTT"), ("Web STOMP 1.2", "Web STOMP")],
)
def test_lines_about_connections_name_their_protocol(
    protocol: str, shown: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: RabbitMQ 3.10.8, rabbit_reader, rabbit_mqtt_reader, rabbit_stomp_reader."""
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    world, observer = World(), LogObserver()
    connection = world.client().connection
    connection.protocol = protocol
    with caplog.at_level(logging.INFO):
        observer.accepted(connection)
        observer.login_refused(connection, "PLAIN", "no")
        observer.closed(connection, in_good_order=True)
        observer.closed(connection, in_good_order=False)
    begins = [
        "accepting {} connection",
        "Error on {} connection",
        "closing {} connection",
        "closing {} connection",
    ]
    for record, begin in zip(caplog.records, begins, strict=True):
        assert record.getMessage().startswith(begin.format(shown))


def test_logins_are_logged_at_level_debug(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    connection = World().client().connection
    with caplog.at_level(logging.DEBUG):
        LogObserver().login_tried(connection, "bob", "user 'bob' - invalid credentials")
        LogObserver().login_tried(connection, "bob", "")
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith("User 'bob' authenticated successfully")


def test_messages_that_nobody_can_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that names the queue, their number and why."""
    monkeypatch.setattr(logging.getLogger("fluffle"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        LogObserver().messages_unreadable(QueueRecord("/", "a\nb", "uid"), 7, "queues/uid/0.idx: 12 bytes")
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    text = record.getMessage()
    assert "Queue 'a\\nb' in vhost '/' has lost 7 message(s)" in text
    assert "queues/uid/0.idx: 12 bytes" in text
