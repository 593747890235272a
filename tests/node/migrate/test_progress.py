"""Progress and report: how far a migration is, and its evidence."""

import json

from node.migrate.counts import Reading
from node.migrate.history import History, Record, sample_record, shovel_record, stage_record
from node.migrate.progress import Pace, progress, progress_json, progress_text
from node.migrate.report import report, report_json, report_text
from node.migrate.shovels import Shovel
from node.migrate.tables import bar, duration, octets
from tests.node.migrate.moves import move
from tests.node.migrate.sites import connection_row, consumer_row, counters, fluffle, queue_row, rabbit

ORDERS = Shovel("/", "orders", "out")


def sample(side: str, name: str, messages: int, publish: int, out: int, redelivered: int = 0) -> Record:
    found = Reading(("/", name), messages, publish, out, redelivered)
    return sample_record("rabbitmq" if side == "rabbitmq" else "fluffle", [found], 1.0)


RECORDS = [
    sample("rabbitmq", "orders", 100, 0, 0),
    sample("fluffle", "orders", 0, 0, 0),
    shovel_record(ORDERS, is_put=True),
    stage_record("started", "out"),
    sample("rabbitmq", "orders", 40, 0, 60),
]


def test_progress_is_what_has_left_the_source() -> None:
    shovels = [{"vhost": "/", "name": ORDERS.name, "state": "running"}]
    found = move(
        rabbit([queue_row("orders", 40, **counters(0, 60))], shovels=shovels),
        fluffle([queue_row("orders", 60)]),
        RECORDS,
    )
    pace = Pace()
    pace.look(0.0, 100)
    shown = progress(found, pace, 6.0)
    assert (shown.source, shown.target, shown.done, shown.rate, shown.left_s) == (40, 60, 0.6, 10.0, 4.0)
    text = progress_text(shown, "now")
    assert "60%" in text
    assert "4 s left" in text
    assert "running" in text
    assert json.loads(json.dumps(progress_json(shown, "now")))["seconds_left"] == 4.0


def test_a_queue_that_waits_says_for_what() -> None:
    source = rabbit([queue_row("q")], connections=[connection_row("c")], consumers=[consumer_row("c", "q")])
    shown = progress(move(source, fluffle([queue_row("q")]), [stage_record("started", "out")]), Pace(), 0.0)
    assert shown.rows[0].state == "waits for 1 consumer to leave"
    assert shown.done == 1.0


def test_the_time_that_is_left_is_not_always_known() -> None:
    pace = Pace()
    assert pace.left_s() == 0.0
    pace.look(0.0, 10)
    assert pace.left_s() is None
    pace.look(1.0, 15)
    assert (pace.rate, pace.left_s()) == (-5.0, None)


def test_an_even_report() -> None:
    found = report(
        _history([sample("rabbitmq", "orders", 0, 0, 100), sample("fluffle", "orders", 30, 100, 70)])
    )
    assert found.is_even
    assert "nothing is unaccounted for" in report_text(found, "now")
    assert report_json(found, "now")["is_even"] is True


def test_a_lost_message_is_seen() -> None:
    found = report(
        _history([sample("rabbitmq", "orders", 0, 0, 100), sample("fluffle", "orders", 29, 100, 70)])
    )
    assert not found.is_even
    assert found.lines[0].verdict == "1 unaccounted at Fluffle"
    assert "1 of 1 queues are not even" in report_text(found, "now")


def test_messages_that_came_twice() -> None:
    records = [sample("rabbitmq", "orders", 0, 0, 100, 4), sample("fluffle", "orders", 103, 103, 0)]
    assert report(_history(records)).lines[0].carried == (100, 3, 3)


def test_dead_letters_come_in_uncounted() -> None:
    records = [sample("rabbitmq", "orders", 0, 0, 105), sample("fluffle", "orders", 105, 105, 0)]
    assert report(_history(records)).lines[0].verdict == "5 uncounted came to RabbitMQ"


def _history(records: list[Record]) -> History:
    return move(rabbit(), fluffle(), [*RECORDS, *records]).history


def test_numbers_are_readable() -> None:
    assert [duration(each) for each in (None, 5, 125, 7300)] == ["–", "5 s", "2 min 05 s", "2 h 01 min"]
    assert [octets(each) for each in (5, 2048, 3 << 30)] == ["5 B", "2.0 KiB", "3.0 GiB"]
    assert bar(0.5).startswith("[###############-------")
    assert bar(7.0).endswith("100%")
