"""The rows of the HTTP API."""

from node.shovels.definition import ShovelKey, read_definition
from node.shovels.status import ShovelStatus, ends_of, shown_time, status_row

KEY = ShovelKey("/", "s")


def test_a_row_has_rabbitmqs_fields() -> None:
    status = ShovelStatus(KEY, "dynamic", "terminated", 1_700_000_000.0, '"needed a restart"', "why")
    assert status_row(status, "n1@h") == {
        "node": "n1@h",
        "timestamp": "2023-11-14 22:13:20",
        "name": "s",
        "vhost": "/",
        "type": "dynamic",
        "state": "terminated",
        "reason": '"needed a restart"',
        "error": "why",
    }


def test_times_are_shown_as_rabbitmq_shows_them() -> None:
    assert shown_time(1_700_000_000.0 + 11 * 3600) == "2023-11-15 9:13:20"


def test_a_static_shovel_has_no_vhost_and_shows_its_uris_only() -> None:
    value = {"src-uri": "amqp://a", "src-queue": "q", "dest-uri": "amqp://b", "dest-queue": "r"}
    static = read_definition(ShovelKey("", "s"), value, "static")
    ends = ends_of(static, "amqp://a", "amqp://b")
    assert [name for name, _ in ends] == ["src_uri", "src_protocol", "dest_protocol", "dest_uri"]
    row = status_row(ShovelStatus(static.key, "static", "running", 0.0, ends=ends), "n")
    assert "vhost" not in row
    dynamic = read_definition(KEY, {**value, "dest-exchange": None, "src-exchange-key": "k"})
    assert dict(ends_of(dynamic, "a", "b"))["dest_queue"] == "r"
