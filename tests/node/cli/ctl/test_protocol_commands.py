"""Lists of the clients of STOMP and MQTT: as a live RabbitMQ 3.10.8's, without its columns about its own processes."""

import pytest

from node.cli.ctl.lists import Listing
from node.cli.ctl.protocol_commands import MQTT_COLUMNS, MQTT_CONNECTIONS, STOMP_COLUMNS, STOMP_CONNECTIONS
from tests.node.cli.ctl.fake_node import FakeNode, Run

STOMP = {
    "session_id": "session-x",
    "conn_name": "127.0.0.1:35200 -> 127.0.0.1:61613",
    "connection": "<n1@h.1.7.0>",
    "connection_state": "running",
    "implicit_connect": False,
    "peer_addr": "127.0.0.1",
    "protocol": "STOMP 1.2",
    "client_properties": {"product": "STOMP client"},
    "ssl_protocol": None,
}


@pytest.mark.parametrize(
    ("command", "listing", "banner"),
    [
        ("list_stomp_connections", STOMP_CONNECTIONS, "Listing STOMP connections ..."),
        ("list_mqtt_connections", MQTT_CONNECTIONS, "Listing MQTT connections ..."),
    ],
)
def test_defaults(run: Run, fake: FakeNode, command: str, listing: Listing, banner: str) -> None:
    """Without rows there is no header either."""
    fake.answers[command] = {"rows": []}
    assert run(command) == (0, f"{banner}\n", "")
    assert fake.asked == [(command, {"columns": list(listing.default)})]


def test_stomp(run: Run, fake: FakeNode) -> None:
    fake.answers["list_stomp_connections"] = {"rows": [STOMP]}
    assert run("-q", "list_stomp_connections")[1] == (
        f"session_id\tconn_name\nsession-x\t{STOMP['conn_name']}\n"
    )
    columns = ("protocol", "client_properties", "implicit_connect", "ssl_protocol")
    assert run("-s", "list_stomp_connections", *columns)[1] == (
        'STOMP 1.2\t[{"product","STOMP client"}]\tfalse\t\n'
    )


@pytest.mark.parametrize(
    ("command", "columns"),
    [("list_stomp_connections", STOMP_COLUMNS), ("list_mqtt_connections", MQTT_COLUMNS)],
)
def test_verbose(run: Run, fake: FakeNode, command: str, columns: tuple[str, ...]) -> None:
    fake.answers[command] = {"rows": [STOMP]}
    assert run("-q", command, "--verbose")[1].splitlines()[0].split("\t") == list(columns)
    assert fake.asked == [(command, {"columns": list(columns)})]


def test_an_unknown_column(run: Run) -> None:
    code, _, text = run("list_stomp_connections", "client_id")
    assert code == 64
    assert "Info key(s) client_id are not supported" in text


def test_a_protocol_of_a_plug_in_is_a_text_in_the_list_of_all(run: Run, fake: FakeNode) -> None:
    fake.answers["list_connections"] = {"rows": [{"protocol": "STOMP 1.2"}, {"protocol": [0, 9, 1]}]}
    assert run("-s", "list_connections", "protocol")[1] == "STOMP 1.2\n{0,9,1}\n"
