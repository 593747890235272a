"""The rows of the HTTP API."""

from datetime import datetime, timedelta, timezone

from node.shovels.definition import ShovelKey, read_definition
from node.shovels.status import ShovelStatus, ends_of, shown_time, status_row

KEY = ShovelKey("/", "s")
SUMMER = timezone(timedelta(hours=2))
"""The time zone of the node: RabbitMQ shows the time of day there."""


def test_a_row_has_rabbitmqs_fields() -> None:
    status = ShovelStatus(KEY, "dynamic", "terminated", 1_700_000_000.0, '"needed a restart"', "why")
    assert status_row(status, "n1@h", lambda at: datetime.fromtimestamp(at, SUMMER)) == {
        "node": "n1@h",
        "timestamp": "2023-11-15 0:13:20",
        "name": "s",
        "vhost": "/",
        "type": "dynamic",
        "state": "terminated",
        "reason": '"needed a restart"',
        "error": "why",
    }


def test_times_are_shown_as_rabbitmq_shows_them() -> None:
    assert shown_time(datetime(2023, 11, 5, 9, 3, 20)) == "2023-11-05 9:03:20"


def test_a_static_shovel_has_no_vhost_and_shows_its_uris_only() -> None:
    value = {"src-uri": "amqp://a", "src-queue": "q", "dest-uri": "amqp://b", "dest-queue": "r"}
    static = read_definition(ShovelKey("", "s"), value, "static")
    ends = ends_of(static, "amqp://a", "amqp://b")
    assert [name for name, _ in ends] == ["src_uri", "src_protocol", "dest_protocol", "dest_uri"]
    row = status_row(
        ShovelStatus(static.key, "static", "running", 0.0, ends=ends), "n", datetime.fromtimestamp
    )
    assert "vhost" not in row
    dynamic = read_definition(KEY, {**value, "dest-exchange": None, "src-exchange-key": "k"})
    assert dict(ends_of(dynamic, "a", "b"))["dest_queue"] == "r"
