"""The example of a sensor: paho publishes, pika reads, on Fluffle and on RabbitMQ."""

import os
import subprocess
import sys

from tests.conformance.mqtt.conftest import MqttServer
from tests.kit.patience import LIMIT_S
from tests.kit.server_process import ROOT


def test_a_sensor_speaks_mqtt_and_its_reader_amqp(mqtt_server: MqttServer) -> None:
    server, port = mqtt_server.server, mqtt_server.mqtt_port
    environ = {
        **os.environ,
        "AMQP_URL": f"amqp://guest:guest@{server.host}:{server.port}/%2F",
        "MQTT_HOST": "127.0.0.1",
        "MQTT_PORT": str(port),
    }
    program = [sys.executable, str(ROOT / "examples" / "mqtt_sensor.py")]
    reader = subprocess.Popen(
        [*program, "read", "--count", "2"], env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        sent = subprocess.run(
            [*program, "send", "kitchen"],
            env=environ,
            input="20\n21.5\n",
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert (sent.returncode, sent.stdout) == (0, "2 values confirmed\n"), sent.stderr
        output, _ = reader.communicate(timeout=LIMIT_S)
    finally:
        reader.kill()
        reader.wait()
    assert output == "kitchen 20.0\nkitchen 21.5\n"
