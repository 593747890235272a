"""Consumers (management §1.8)."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods
from node.amqp.field_table import boolean, long
from tests.conformance.http.steps import eventually, is_missing, path, succeeds
from tests.conformance.http.test_connections import name_of
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi

pytestmark = pytest.mark.slow  # RabbitMQ shows a consumer within 5 s


def consumers(api: HttpApi, vhost: str, count: int) -> Any:
    """The consumers of the vhost, once there are so many, and they are shown in whole."""

    def look() -> Any:
        rows = succeeds(api.get(path("consumers", vhost)))
        return len(rows) == count and all(row["channel_details"] for row in rows) and rows

    return eventually(look)


def test_all_fields_are_there(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """Row GET /consumers/{vhost}, and its fields."""
    connection = connect(vhost=vhost)
    channel = connection.channel(2)
    channel.call(methods.BasicQos, prefetch_count=3)
    channel.declare("q")
    channel.consume("q", consumer_tag="tag", exclusive=True, arguments={"x-priority": long(5)})
    (row,) = consumers(api, vhost, 1)
    host, port = connection.socket.getsockname()
    details = row.pop("channel_details")
    assert row == {
        "queue": {"name": "q", "vhost": vhost},
        "consumer_tag": "tag",
        "ack_required": True,
        "exclusive": True,
        "prefetch_count": 3,
        "active": True,
        "activity_status": "up",
        "arguments": {"x-priority": 5},
    }
    assert details.pop("node")
    assert details == {
        "name": f"{name_of(connection)} (2)",
        "number": 2,
        "connection_name": name_of(connection),
        "peer_host": host,
        "peer_port": port,
        "user": "guest",
    }
    assert [each for each in succeeds(api.get("/consumers")) if each["consumer_tag"] == "tag"]


def test_single_active_consumers(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """active (bool, single active consumer), activity_status ("up", "single_active", "waiting")."""
    channel = connect(vhost=vhost).channel(1)
    channel.declare("q", arguments={"x-single-active-consumer": boolean(True)})
    for tag in ("first", "second"):
        channel.consume("q", consumer_tag=tag)
    found = {row["consumer_tag"]: row for row in consumers(api, vhost, 2)}
    assert (found["first"]["active"], found["first"]["activity_status"]) == (True, "single_active")
    assert (found["second"]["active"], found["second"]["activity_status"]) == (False, "waiting")


def test_lists_of_users(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], make_manager: Callable[..., HttpApi]
) -> None:
    """§2.1: own only."""
    manager = make_manager(vhost)
    user = manager._user
    own, other = connect(user, user, vhost).channel(1), connect(vhost=vhost).channel(1)
    own.declare("q")
    own.consume("q", consumer_tag="own")
    other.consume("q", consumer_tag="other")
    consumers(api, vhost, 2)
    assert [row["consumer_tag"] for row in succeeds(manager.get("/consumers"))] == ["own"]
    monitor = make_manager(None, tag="monitoring")
    tags = {row["consumer_tag"] for row in succeeds(monitor.get("/consumers"))}
    assert tags >= {"own", "other"}


def test_what_is_not_there(api: HttpApi) -> None:
    is_missing(api.get("/consumers/no-such-vhost"))


def test_a_cancelled_consumer_goes(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    channel = connect(vhost=vhost).channel(1)
    channel.declare("q")
    channel.consume("q", consumer_tag="tag")
    consumers(api, vhost, 1)
    channel.call(methods.BasicCancel, consumer_tag="tag")
    eventually(lambda: succeeds(api.get(path("consumers", vhost))) == [])
