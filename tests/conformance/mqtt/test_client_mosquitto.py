"""mosquitto_pub, mosquitto_sub and mosquitto_rr, unmodified: MQTT 3.1, 3.1.1 and 5.0, on Fluffle and on RabbitMQ."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.conformance.mqtt.conftest import MqttServer
from tests.conformance.mqtt.paho_client import V5, Connect
from tests.kit.patience import LIMIT_S, wait_until
from tests.kit.server_cluster import is_rabbitmq

TOOLS: Final = ("mosquitto_pub", "mosquitto_sub", "mosquitto_rr")

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason="Debian's mosquitto-clients is not installed"
)

Name = Callable[[str], str]
Tool = Callable[..., subprocess.Popen[str]]

VERSIONS = ["mqttv31", "mqttv311"] if is_rabbitmq() else ["mqttv31", "mqttv311", "mqttv5"]
QOS_MAX = 1 if is_rabbitmq() else 2


@pytest.fixture
def tool(mqtt_server: MqttServer) -> Iterator[Tool]:
    """Start one of the tools with arguments; it ends with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(program: str, version: str, *arguments: str) -> subprocess.Popen[str]:
        where = ["-h", "127.0.0.1", "-p", str(mqtt_server.mqtt_port), "-u", "guest", "-P", "guest"]
        command = ["stdbuf", "-oL", program, *where, "-V", version, *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """Return all that a tool has printed when it has ended, without a fault."""
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    return output


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", range(QOS_MAX + 1))
def test_publish_and_subscribe(tool: Tool, name: Name, version: str, qos: int) -> None:
    """The retained message comes first, so that the subscriber is there when the others are published."""
    topic = name("t")
    assert said(tool("mosquitto_pub", version, "-t", topic, "-m", "kept", "-r", "-q", "1")) == ""
    subscriber = tool("mosquitto_sub", version, "-t", topic, "-q", str(qos), "-C", "3", "-F", "%q %r %p")
    assert subscriber.stdout is not None
    assert subscriber.stdout.readline() == f"{min(qos, 1)} 1 kept\n"
    for text in ("one", "two"):
        said(tool("mosquitto_pub", version, "-t", topic, "-m", text, "-q", str(qos)))
    assert said(subscriber) == f"{qos} 0 one\n{qos} 0 two\n"
    said(tool("mosquitto_pub", version, "-t", topic, "-n", "-r"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_waits_for_its_client(tool: Tool, name: Name, version: str) -> None:
    topic = name("t")
    session = ["-i", name("s"), "-c", "-q", "1", "-t", topic]
    if version == "mqttv5":
        session += ["-x", "100"]
    said(tool("mosquitto_sub", version, *session, "-E"))  # it ends when it has subscribed
    said(tool("mosquitto_pub", version, "-t", topic, "-m", "while away", "-q", "1"))
    assert said(tool("mosquitto_sub", version, *session, "-C", "1")) == "while away\n"


def test_the_will_of_a_client_that_is_killed(tool: Tool, mqtt: Connect, name: Name) -> None:
    topic, will = name("t"), name("w")
    watcher = mqtt(name("c"))
    watcher.subscribe((will, 1), (topic, 1))
    said(tool("mosquitto_pub", "mqttv311", "-t", topic, "-m", "kept", "-r", "-q", "1"))
    watcher.await_messages(1)
    killed = tool(
        "mosquitto_sub",
        "mqttv311",
        "-t",
        topic,
        "--will-topic",
        will,
        "--will-payload",
        "gone",
        "--will-qos",
        "1",
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "kept\n"
    killed.kill()
    assert watcher.await_messages(1) == [(will, b"gone", 1, False)]
    watcher.publish(topic, b"", retain=True)


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ 3.10 has no MQTT 5.0")
def test_request_and_response(tool: Tool, mqtt: Connect, name: Name) -> None:
    """mosquitto_rr sends a request with a response topic, and prints the answer that comes there."""
    requests, answers = name("q"), name("a")
    server = mqtt(name("s"), V5)
    server.subscribe((requests, 1))
    client = tool("mosquitto_rr", "mqttv5", "-t", requests, "-e", answers, "-m", "ping", "-q", "1")
    wait_until(lambda: server.messages, "the request has come")
    (request,) = server.messages
    assert (request.payload, request.properties.ResponseTopic) == (b"ping", answers)
    server.publish(answers, b"pong")
    assert said(client) == "pong\n"
