"""Channels (management §1.7)."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods
from tests.conformance.http.steps import bad_request, eventually, is_missing, path, refused, succeeds
from tests.conformance.http.test_connections import NOT_OWN, name_of
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

pytestmark = pytest.mark.slow  # RabbitMQ shows a channel within 5 s

FIELDS = {
    *("acks_uncommitted", "confirm", "connection_details", "consumer_count", "garbage_collection"),
    *("global_prefetch_count", "idle_since", "messages_unacknowledged", "messages_uncommitted"),
    *("messages_unconfirmed", "name", "node", "number", "pending_raft_commands", "prefetch_count"),
    *("reductions", "reductions_details", "state", "transactional", "user", "user_who_performed_action"),
    "vhost",
}
DETAILS = {"consumer_details", "publishes", "deliveries"}


def shown(api: HttpApi, connection: Connection, number: int = 1, *, idle: bool = False) -> dict[str, Any]:
    """The channel's row, once it is there in whole."""

    def look() -> Any:
        found = api.get(path("channels", f"{name_of(connection)} ({number})"))
        wanted = {"idle_since", "reductions"} if idle else {"consumer_count"}
        return found.status == 200 and wanted <= set(found.json) and found.json

    row: dict[str, Any] = eventually(look)
    return row


def test_all_fields_are_there(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """Fields; single adds consumer_details, publishes, deliveries."""
    connection = connect(vhost=vhost)
    channel = connection.channel(1)
    channel.call(methods.ConfirmSelect)
    channel.call(methods.BasicQos, prefetch_count=7)
    single = shown(api, connection, idle=True)
    assert set(single) == FIELDS | DETAILS
    (row,) = succeeds(api.get(path("vhosts", vhost, "channels")))
    assert set(row) == FIELDS
    host, port = connection.socket.getsockname()
    assert row["connection_details"] == {"name": name_of(connection), "peer_host": host, "peer_port": port}
    assert (row["name"], row["number"]) == (f"{name_of(connection)} (1)", 1)
    assert (row["vhost"], row["user"], row["confirm"], row["transactional"]) == (vhost, "guest", True, False)
    assert (row["prefetch_count"], row["global_prefetch_count"]) == (7, 0)
    assert row["state"] == "running"


def test_what_a_channel_does(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """consumer_count, messages_unacknowledged, message_stats, consumer_details."""
    connection = connect(vhost=vhost)
    channel = connection.channel(1)
    queue = channel.declare("q")
    channel.consume(queue, consumer_tag="tag")
    channel.publish("", queue, b"x")
    channel.deliver()

    def look() -> Any:
        row = shown(api, connection)
        return (
            "message_stats" in row and row["messages_unacknowledged"] == 1 and row["consumer_details"] and row
        )

    row = eventually(look)
    assert row["consumer_count"] == 1
    assert (row["message_stats"]["publish"], row["message_stats"]["deliver"]) == (1, 1)
    assert row["message_stats"]["deliver_get"] == 1
    assert row["consumer_details"][0]["consumer_tag"] == "tag"


def test_transactions(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """transactional, messages_uncommitted."""
    connection = connect(vhost=vhost)
    channel = connection.channel(1)
    queue = channel.declare("q")
    channel.call(methods.TxSelect)
    channel.publish("", queue, b"x")
    channel.sync()
    eventually(lambda: shown(api, connection)["messages_uncommitted"] == 1)
    assert shown(api, connection)["transactional"] is True


def test_channels_of_a_connection(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """Row GET /connections/{name}/channels."""
    connection, other = connect(vhost=vhost), connect(vhost=vhost)
    for number in (1, 2):
        connection.channel(number)
    other.channel(1)
    where = path("connections", name_of(connection), "channels")
    rows = eventually(lambda: (found := api.get(where)).status == 200 and len(found.json) == 2 and found.json)
    assert [row["number"] for row in rows] == [1, 2]
    columns = succeeds(api.get(where + "?columns=number,connection_details.peer_port&sort_reverse=true"))
    port = connection.socket.getsockname()[1]
    assert columns == [{"number": n, "connection_details": {"peer_port": port}} for n in (2, 1)]


def test_others_see_only_their_own(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], make_manager: Callable[..., HttpApi]
) -> None:
    """§2.1: connections, channels, consumers: own only."""
    manager = make_manager(vhost)
    user = manager._user
    own, other = connect(user, user, vhost), connect(vhost=vhost)
    own.channel(1)
    other.channel(1)
    shown(api, own)
    shown(api, other)
    assert [row["user"] for row in succeeds(manager.get("/channels"))] == [user]
    refused(manager.get(path("channels", f"{name_of(other)} (1)")), NOT_OWN)


def test_what_is_not_there(api: HttpApi) -> None:
    is_missing(api.get("/channels/nope"))
    is_missing(api.get("/vhosts/no-such-vhost/channels"))
    assert api.get("/connections/nope/channels").status == (500 if is_rabbitmq() else 404)


def test_without_statistics(api: HttpApi) -> None:
    """With stats disabled → 400 `Stats in management UI are disabled on this node`."""
    bad_request(api.get("/channels?disable_stats=true"), "Stats in management UI are disabled on this node")
