"""mqtt.js, unmodified, in Node.js: MQTT 3.1, 3.1.1 and 5.0, on TCP and WebSocket, on Fluffle and on RabbitMQ."""

import json
import subprocess
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.mqtt.conftest import MqttServer
from tests.kit.mqtt_js import PACKAGE, needs_node, needs_package
from tests.kit.patience import LIMIT_S
from tests.kit.server_cluster import is_rabbitmq

pytestmark = [needs_package, needs_node]

Name = Callable[[str], str]

VERSIONS = [3, 4] if is_rabbitmq() else [3, 4, 5]
QOS_MAX = 1 if is_rabbitmq() else 2

PROGRAM: Final = """
const { connectAsync } = require(process.argv[1]);
const { url, options, topic, qosMax, payload } = JSON.parse(process.argv[2]);
(async () => {
  const told = [];
  const client = await connectAsync(url, { username: "guest", password: "guest", reconnectPeriod: 0, ...options });
  const came = new Promise((resolve) => client.on("message", (topic, body, packet) => {
    told.push([topic, body.toString(), packet.qos, packet.retain, packet.properties?.userProperties?.a ?? null]);
    if (told.length === 5) resolve();
  }));
  const properties = options.protocolVersion === 5 ? { userProperties: { a: "b" } } : undefined;
  await client.publishAsync(topic + "/kept", payload, { qos: 1, retain: true, properties });
  const granted = await client.subscribeAsync(topic + "/#", { qos: qosMax });
  told.unshift(granted.map((each) => each.qos));
  for (let qos = 0; qos <= 2; qos++) await client.publishAsync(topic + "/" + qos, "m" + qos, { qos, properties });
  await came;
  await client.unsubscribeAsync(topic + "/#");
  await client.publishAsync(topic + "/kept", "", { qos: 1, retain: true });
  await client.endAsync();
  console.log(JSON.stringify(told));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_publishes_and_subscribes(
    mqtt_server: MqttServer, name: Name, version: int, scheme: str
) -> None:
    topic, payload = name("t"), "grün" * 10_000
    port = mqtt_server.mqtt_port if scheme == "mqtt" else mqtt_server.web_port
    options: dict[str, Any] = {"protocolVersion": version, "clientId": name("c"), "clean": True}
    if version == 3:
        options["protocolId"] = "MQIsdp"
    given = {
        "url": f"{scheme}://127.0.0.1:{port}/ws",
        "options": options,
        "topic": topic,
        "qosMax": QOS_MAX,
        "payload": payload,
    }
    done = subprocess.run(
        ["node", "-e", PROGRAM, str(PACKAGE), json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mark = "b" if version == 5 else None
    assert json.loads(done.stdout) == [
        [QOS_MAX],
        [f"{topic}/kept", payload, 1, True, mark],
        *([f"{topic}/{qos}", f"m{qos}", min(qos, QOS_MAX), False, mark] for qos in range(3)),
    ]
