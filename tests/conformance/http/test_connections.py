"""Connections (management §1.6)."""

from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods
from node.amqp.field_table import boolean, longstr, table
from tests.conformance.http.steps import (
    VHOST_REFUSED,
    eventually,
    is_missing,
    path,
    publish,
    put_queue,
    refused,
    succeeds,
)
from tests.kit.amqp_client import Connection
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import is_rabbitmq

pytestmark = pytest.mark.slow  # RabbitMQ shows a connection within 5 s

FIELDS = {
    *("auth_mechanism", "channel_max", "channels", "client_properties", "connected_at", "frame_max"),
    *("garbage_collection", "host", "name", "node", "peer_cert_issuer", "peer_cert_subject"),
    *("peer_cert_validity", "peer_host", "peer_port", "port", "protocol", "recv_cnt", "recv_oct"),
    *("recv_oct_details", "reductions", "reductions_details", "send_cnt", "send_oct", "send_oct_details"),
    *("send_pend", "ssl", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "ssl_protocol", "state", "timeout"),
    *("type", "user", "user_provided_name", "user_who_performed_action", "vhost"),
}
NOT_OWN = {"error": "not_authorised", "reason": "User not authorised to access object"}
PROPERTIES = {
    "connection_name": longstr("my connection"),
    "product": longstr("test"),
    "capabilities": table({"connection.blocked": boolean(True)}),
}


def name_of(connection: Connection) -> str:
    """`peer_ip:port -> local_ip:port`."""
    (host, port), (peer_host, peer_port) = connection.socket.getsockname(), connection.socket.getpeername()
    return f"{host}:{port} -> {peer_host}:{peer_port}"


def shown(api: HttpApi, connection: Connection) -> dict[str, Any]:
    """The connection's row, once it is there in whole."""

    def look() -> Any:
        found = api.get(path("connections", name_of(connection)))
        return found.status == 200 and "recv_oct" in found.json and found.json

    row: dict[str, Any] = eventually(look)
    return row


def test_all_fields_are_there(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """The table of fields, in the list and of the single object."""
    connection = connect(vhost=vhost, client_properties=PROPERTIES, heartbeat=30, channel_max=100)
    connection.channel(1)
    single = shown(api, connection)
    assert set(single) == FIELDS
    (row,) = [each for each in succeeds(api.get("/connections")) if each["name"] == name_of(connection)]
    assert set(row) == FIELDS
    host, port = connection.socket.getsockname()
    assert (row["peer_host"], row["peer_port"]) == (host, port)
    assert (row["host"], row["port"]) == connection.socket.getpeername()
    assert (row["vhost"], row["user"], row["user_who_performed_action"]) == (vhost, "guest", "guest")
    assert (row["protocol"], row["type"], row["auth_mechanism"]) == ("AMQP 0-9-1", "network", "PLAIN")
    assert (row["timeout"], row["frame_max"], row["channel_max"]) == (30, 131072, 100)
    assert (row["ssl"], row["ssl_protocol"], row["peer_cert_subject"]) == (False, None, None)
    assert row["user_provided_name"] == "my connection"
    assert row["client_properties"] == {
        "connection_name": "my connection",
        "product": "test",
        "capabilities": {"connection.blocked": True},
    }
    assert row["state"] == "running"
    assert row["connected_at"] > 1_500_000_000_000
    assert row["recv_oct"] > 0
    assert row["recv_oct_details"] == {"rate": 0.0} or row["recv_oct_details"]["rate"] > 0
    eventually(lambda: shown(api, connection)["channels"] == 1)


def test_a_connection_without_a_name_of_its_own(
    api: HttpApi, vhost: str, connect: Callable[..., Connection]
) -> None:
    """user_provided_name: from client property connection_name (absent otherwise)."""
    assert set(shown(api, connect(vhost=vhost))) == FIELDS - {"user_provided_name"}


def test_lists_by_vhost(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """Row GET /vhosts/{v}/connections; a connection goes at once when it is closed."""
    connection = connect(vhost=vhost)
    name = name_of(connection)
    shown(api, connection)
    rows = succeeds(api.get(path("vhosts", vhost, "connections")))
    assert [(row["name"], row["vhost"], row["state"]) for row in rows] == [(name, vhost, "running")]
    rows = succeeds(api.get("/connections?columns=name", headers={"x-vhost": vhost}))
    assert rows == [{"name": name}]
    is_missing(api.get("/vhosts/no-such-vhost/connections"))
    connection.close()
    eventually(lambda: succeeds(api.get(path("vhosts", vhost, "connections"))) == [], within=2)
    is_missing(api.get(path("connections", name)))


def test_others_see_only_their_own(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], make_manager: Callable[..., HttpApi]
) -> None:
    """all: monitoring; others only their own."""
    manager, monitor = make_manager(vhost), make_manager(None, tag="monitoring")
    user = manager._user
    own, other = connect(user, user, vhost), connect(vhost=vhost)
    shown(api, own)
    shown(api, other)
    assert [row["name"] for row in succeeds(manager.get("/connections"))] == [name_of(own)]
    assert [row["name"] for row in succeeds(manager.get(path("vhosts", vhost, "connections")))] == [
        name_of(own)
    ]
    assert succeeds(manager.get(path("connections", name_of(own))))["user"] == user
    refused(manager.get(path("connections", name_of(other))), NOT_OWN)
    names = {row["name"] for row in succeeds(monitor.get("/connections"))}
    assert names >= {name_of(own), name_of(other)}
    assert succeeds(monitor.get(path("connections", name_of(other))))["user"] == "guest"
    refused(make_manager(None).get(path("vhosts", vhost, "connections")), VHOST_REFUSED)


def test_close_with_a_reason(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """DELETE: header `X-Reason` → client gets 320 `CONNECTION_FORCED - {reason}`; 204 / 404."""
    connection = connect(vhost=vhost)
    name = name_of(connection)
    shown(api, connection)
    answer = api.delete(path("connections", name), headers={"X-Reason": "too loud"})
    assert (answer.status, answer.text) == (204, "")
    connection.expect_connection_close(320, "CONNECTION_FORCED - too loud", None)
    eventually(lambda: api.delete(path("connections", name)).status == 404)


def test_close_without_a_reason(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """Default reason text "Closed via management plugin"."""
    connection = connect(vhost=vhost)
    shown(api, connection)
    assert api.delete(path("connections", name_of(connection))).status == 204
    connection.expect_connection_close(320, "CONNECTION_FORCED - Closed via management plugin", None)


def test_who_may_close(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], make_manager: Callable[..., HttpApi]
) -> None:
    """Own or administrator."""
    manager, monitor = make_manager(vhost), make_manager(None, tag="monitoring")
    user = manager._user
    own, other = connect(user, user, vhost), connect(vhost=vhost)
    shown(api, own)
    shown(api, other)
    refused(manager.delete(path("connections", name_of(other))), NOT_OWN)
    refused(monitor.delete(path("connections", name_of(other))), NOT_OWN)
    assert manager.delete(path("connections", name_of(own))).status == 204
    own.expect_connection_close(320, "CONNECTION_FORCED - Closed via management plugin", None)
    other.channel(1)


def test_connections_of_a_user(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], make_user: Callable[..., str]
) -> None:
    """Row GET, DELETE /connections/username/{user}: name, vhost, user, node; closes all, 204 even if none."""
    user = make_user(vhost)
    assert succeeds(api.get(path("connections", "username", user))) == []
    assert api.delete(path("connections", "username", user)).status == 204
    connections = [connect(user, user, vhost) for _ in range(2)]
    rows = eventually(
        lambda: len(found := succeeds(api.get(path("connections", "username", user)))) == 2 and found
    )
    assert {row["name"] for row in rows} == {name_of(each) for each in connections}
    assert all(set(row) == {"name", "vhost", "user", "node"} and row["user"] == user for row in rows)
    answer = api.delete(path("connections", "username", user), headers={"X-Reason": "gone"})
    assert answer.status == 204
    for each in connections:
        each.expect_connection_close(320, "CONNECTION_FORCED - gone", None)


def test_connections_of_a_user_are_their_own(
    api: HttpApi, vhost: str, make_manager: Callable[..., HttpApi]
) -> None:
    """RabbitMQ answers 500 to those who are no administrators."""
    manager = make_manager(vhost)
    if is_rabbitmq():
        assert manager.get("/connections/username/guest").status == 500
        return
    refused(manager.get("/connections/username/guest"), NOT_OWN)
    refused(manager.delete("/connections/username/guest"), NOT_OWN)
    assert succeeds(manager.get(path("connections", "username", manager._user))) == []
    assert manager.delete(path("connections", "username", manager._user)).status == 204


def test_what_is_not_there(api: HttpApi) -> None:
    is_missing(api.get("/connections/nope"))
    is_missing(api.delete("/connections/nope"))


@pytest.mark.disturbs_everyone
def test_states_in_an_alarm(
    api: HttpApi, vhost: str, connect: Callable[..., Connection], server: Any
) -> None:
    """During an alarm: publisher that tried to publish → blocked, others → blocking."""
    publisher, other = connect(vhost=vhost), connect(vhost=vhost)
    put_queue(api, vhost, "q")
    channel = publisher.channel(1)
    shown(api, publisher)
    shown(api, other)
    server.admin.set_alarm("memory")
    try:
        channel.publish("", "q", b"x")
        eventually(lambda: shown(api, publisher)["state"] == "blocked")
        eventually(lambda: shown(api, other)["state"] in ("blocking", "running"))
    finally:
        server.admin.clear_alarm("memory")
    eventually(lambda: shown(api, publisher)["state"] == "running")


def test_octets_are_counted(api: HttpApi, vhost: str, connect: Callable[..., Connection]) -> None:
    """recv_oct, send_oct, recv_cnt, send_cnt."""
    put_queue(api, vhost, "q")
    connection = connect(vhost=vhost)
    channel = connection.channel(1)
    before = shown(api, connection)["recv_oct"]
    for _ in range(10):
        channel.publish("", "q", bytes(10_000))
    channel.call(methods.BasicQos, prefetch_count=1)
    eventually(lambda: shown(api, connection)["recv_oct"] >= before + 100_000)


def test_direct_clients_are_no_network_connections(api: HttpApi, vhost: str) -> None:
    put_queue(api, vhost, "q")
    publish(api, vhost, "q")
    assert all(row["type"] == "network" for row in succeeds(api.get("/connections")) if "type" in row)
