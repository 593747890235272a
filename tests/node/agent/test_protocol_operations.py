"""`fluffle ctl` lists the clients of STOMP and MQTT of a node; the columns are those of a live RabbitMQ 3.10.8."""

from pathlib import Path

import pytest

from node.cli.ctl.protocol_commands import MQTT_COLUMNS, STOMP_COLUMNS
from node.mqtt.constants import Version
from node.mqtt.packets import Connect
from tests.kit.agent import Asker, directory, serve
from tests.kit.mqtt_client import MqttClient
from tests.kit.ports import HOST, free_ports
from tests.kit.stomp_client import StompClient

pytestmark = pytest.mark.real

__all__ = ["directory"]  # a fixture

NO_TLS = dict.fromkeys(("ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash"))


def test_the_clients_of_each_protocol(directory: Path) -> None:
    stomp_port, mqtt_port = free_ports(2)

    def asks(ask: Asker) -> None:
        for plugin in ("rabbitmq_stomp", "rabbitmq_mqtt"):
            ask("enable_plugin", plugin=plugin)
        assert ask("list_stomp_connections", columns=["session_id"]) == {"rows": []}
        stomp, mqtt = StompClient(HOST, stomp_port, "1.1"), MqttClient(HOST, mqtt_port, Version.MQTT_5)
        session = stomp.connect().headers["session"]
        mqtt.connect(Connect(Version.MQTT_5, "sensor"))
        [row] = ask("list_stomp_connections", columns=list(STOMP_COLUMNS))["rows"]
        peer = row.pop("peer_port")
        pid = row.pop("connection")
        assert pid.startswith("<t1@localhost.1.")
        assert row == {
            "conn_name": f"{HOST}:{peer} -> {HOST}:{stomp_port}",
            "connection_state": "running",
            "session_id": session,
            "channel": pid.replace(".0>", ".1>"),
            "version": "1.1",
            "implicit_connect": False,
            "auth_login": "guest",
            "auth_mechanism": "stomp_headers",
            "peer_addr": HOST,
            "host": HOST,
            "port": stomp_port,
            "peer_host": HOST,
            "protocol": "STOMP 1.1",
            "channels": 2,
            "channel_max": 2,
            "frame_max": 0,
            "client_properties": {"product": "STOMP client"},
            "ssl": False,
            **NO_TLS,
        }
        [row] = ask("list_mqtt_connections", columns=list(MQTT_COLUMNS))["rows"]
        assert set(row) == set(MQTT_COLUMNS)
        found = {
            name: row[name] for name in ("client_id", "clean_sess", "protocol", "user", "client_properties")
        }
        assert found == {
            "client_id": "sensor",
            "clean_sess": True,
            "protocol": "MQTT 5-0",
            "user": "guest",
            "client_properties": {"product": "MQTT client", "client_id": "sensor"},
        }
        ask("close_connection", pid=pid, reason="enough")
        assert stomp.frame().told == ("connection_forced", "CONNECTION_FORCED - enough")
        stomp.close()
        mqtt.close()

    settings = {
        "stomp.listeners.tcp.default": f"{HOST}:{stomp_port}",
        "mqtt.listeners.tcp.default": f"{HOST}:{mqtt_port}",
    }
    serve(directory, asks, plugin_settings=settings)
