"""A plug-in of one's own is made, tested, installed and used as docs/plugins.md says."""

import base64
import contextlib
import hashlib
import hmac
import importlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from node.amqp.methods import ConnectionClose, ConnectionOpen, ExchangeDeclare, QueueBind
from node.config.file import ConfigError
from node.mqtt.constants import Version
from node.mqtt.packets import Auth, Connack, Connect, Subscription
from node.mqtt.properties import AuthProperties, ConnectProperties
from node.mqtt.reason_codes import ReasonCode
from tests.conformance.queue_steps import drain
from tests.docs.pages import Page
from tests.kit.amqp_client import Connection
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.fluffle_server import TIMEOUT_S, FluffleServer
from tests.kit.mqtt_client import MqttClient
from tests.kit.patience import wait_until
from tests.kit.ports import free_port
from tests.kit.server_process import ROOT

PIP = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation")


def install(folder: Path, example: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Install an example of a plug-in in `site` of a folder.   monkeypatch: this process finds it, too."""
    shutil.copytree(ROOT / "examples" / example, folder / example)
    subprocess.run([*PIP, "--target", "site", f"./{example}"], cwd=folder, check=True, timeout=120)
    if monkeypatch is not None:
        monkeypatch.syspath_prepend(str(folder / "site"))


@pytest.mark.slow
def test_a_plugin_is_made_installed_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are installed into a folder of the test, without an index and with the tools that are here."""
    page = Page("plugins", {"fluffle plugins": f"{sys.executable} -m node plugins --data {tmp_path}/data"})
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> None:
        subprocess.run(words, cwd=tmp_path, env=environ, check=True, timeout=120)

    run("sh", "-ec", page.block("sh", "### 1. Make it"))
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "first_bound")
    shutil.rmtree(tmp_path / "first_bound" / "__pycache__", ignore_errors=True)
    run(*PIP, "--target", "site", "./first_bound")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    server = FluffleServer({}, plugins=("first_bound",))
    try:
        channel = Connection(server).channel(1)
        channel.call(ExchangeDeclare, exchange="e", type="x-first-bound")
        queues = [channel.declare(exclusive=True) for _ in range(3)]
        for queue in queues:
            channel.call(QueueBind, queue=queue, exchange="e")
        for key in "abc":
            channel.publish("e", key, key.encode())
        assert [drain(channel, queue) for queue in queues] == [[b"a", b"b", b"c"], [], []]
        channel.connection.close()
    finally:
        server.stop()


@pytest.mark.slow
def test_the_example_of_an_auth_backend_is_installed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is installed as any other, and the blocks of the page configure it."""
    page = Page("plugins", {"/etc/fluffle/passwords": f"{tmp_path}/passwords"})
    install(tmp_path, "auth_backend", monkeypatch)
    digest = hashlib.sha256(b"secret").hexdigest()
    (tmp_path / "passwords").write_text(f"ada:{digest}:monitoring\n")
    lines = [line for line in page.block("ini", "## Write an auth backend").splitlines() if line]
    settings = dict(line.split(" = ") for line in lines)
    with pytest.raises(ConfigError, match=r"plugin\.password_file\.pth: there is no such setting"):
        FluffleServer({"plugin.password_file.pth": "x"}, plugins=("password_file",))
    with pytest.raises(ConfigError, match="no enabled plug-in of this node brings 'password_file'"):
        FluffleServer(settings, plugins=("rabbitmq_sharding",))
    server = FluffleServer(settings, plugins=("password_file",))
    try:
        server.admin.add_vhost("ada")
        channel = Connection(server, "ada", "secret", "ada").channel(1)
        queue = channel.declare(exclusive=True)
        channel.publish("", queue, b"m")
        assert channel.wait_get(queue).body == b"m"
        channel.connection.close()
        assert Connection(server).channel(1).declare(exclusive=True), "guest is of the catalogue"
        elsewhere = Connection(server, "ada", "secret", "/", open=False)
        elsewhere.start()
        elsewhere.send_start_ok()
        elsewhere.tune()
        elsewhere.send(ConnectionOpen, virtual_host="/")
        close = elsewhere.expect(ConnectionClose)
        assert close.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'ada'"
        elsewhere.abandon()
    finally:
        server.stop()


def scram_proof(password: str, first: bytes, challenge: bytes) -> tuple[bytes, bytes]:
    """Return a client's last message of SCRAM-SHA-256, and the signature by which the server proves itself."""
    fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
    salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    unproven = b"c=biws,r=" + fields[b"r"]
    signed = b",".join((first[3:], challenge, unproven))
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
    return unproven + b",p=" + proof, b"v=" + base64.b64encode(server)


@pytest.mark.slow
def test_the_example_of_a_method_is_installed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of MQTT 5.0 proves that it knows the password, and checks that the node knows the user."""
    install(tmp_path, "auth_method", monkeypatch)
    scram_file = importlib.import_module("scram_file")
    (tmp_path / "scram").write_text(scram_file.line_of("ada", scram_file.keys_of("secret", b"salt")) + "\n")
    port, method = free_port(), "SCRAM-SHA-256"
    settings = {
        "auth_backends.1": "internal",
        "auth_backends.2": "scram_file",
        "plugin.scram_file.path": str(tmp_path / "scram"),
        "mqtt.listeners.tcp.default": f"127.0.0.1:{port}",
    }
    server = FluffleServer(settings, plugins=("scram_file", "rabbitmq_mqtt"))
    first = b"n,,n=ada,r=abc"
    wanted = Connect(
        Version.MQTT_5,
        "c",
        properties=ConnectProperties(authentication_method=method, authentication_data=first),
    )
    try:
        for password in ("secret", "wrong"):
            with MqttClient("127.0.0.1", port, Version.MQTT_5) as client:
                client.send(wanted)
                challenge = client.expect(Auth).properties.authentication_data
                assert challenge is not None
                proof, signature = scram_proof(password, first, challenge)
                client.send(Auth(0x18, AuthProperties(method, proof)))
                connack = client.expect(Connack)
                if password == "wrong":
                    assert connack.code == ReasonCode.NOT_AUTHORIZED
                    continue
                assert (connack.code, connack.properties.authentication_data) == (0, signature)
                client.subscribe(Subscription("t", 0))
                client.publish("t", b"m")
                client.expect_message("t", b"m")
                client.send(Auth(0x19, AuthProperties(method, first)))
                challenge = client.expect(Auth).properties.authentication_data
                assert challenge is not None
                proof, signature = scram_proof(password, first, challenge)
                client.send(Auth(0x18, AuthProperties(method, proof)))
                assert client.expect(Auth) == Auth(0, AuthProperties(method, signature))
    finally:
        server.stop()


@pytest.mark.slow
def test_the_example_of_a_protocol_is_installed_enabled_used_and_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plug-in is enabled on a running node; clients are disconnected when it is disabled."""
    install(tmp_path, "line_protocol", monkeypatch)
    port = free_port()
    server = FluffleServer({"plugin.line_protocol.listeners.tcp.default": f"127.0.0.1:{port}"})
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        server.admin.enable_plugin("line_protocol")
        channel = Connection(server).channel(1)
        with _line_client(port) as client, client.makefile("rb") as lines:
            client.sendall(b"LOGIN guest guest /\n")
            assert lines.readline() == b"OK\n"
            client.sendall(b"LISTEN q\n")
            assert lines.readline() == b"OK\n"
            client.sendall(b"SEND q one\nSEND q two\n")
            assert sorted(lines.readline() for _ in range(4)) == [
                b"MESSAGE 1 one\n",
                b"MESSAGE 2 two\n",
                b"OK\n",
                b"OK\n",
            ]
            client.sendall(b"DONE 1\n")
            server.admin.disable_plugin("line_protocol")
            assert lines.readline() == b"ERROR CONNECTION_FORCED - plug-in 'line_protocol' is disabled\n"
            with contextlib.suppress(ConnectionResetError):  # as every connection that the node closes
                assert lines.read() == b""
        assert channel.wait_get("q").body == b"two", "it was not settled"
        channel.connection.close()
    finally:
        server.stop()


def _line_client(port: int) -> socket.socket:
    """Connect as soon as the listener is open."""

    def connect() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        except ConnectionRefusedError:
            return None

    found = wait_until(connect, "a listener")
    assert found is not None
    return found


@pytest.mark.slow
def test_the_example_of_peer_discovery_is_installed_and_forms_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes that know nothing but the file find each other; what they form is one cluster."""
    install(tmp_path, "nodes_in_file")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}/site")
    monkeypatch.setenv("RABBITMQ_ENABLED_PLUGINS", "nodes_in_file")
    page = Page("plugins", {"/etc/fluffle/nodes": f"{tmp_path}/nodes"})
    lines = [line for line in page.block("ini", "## Find the nodes of a cluster").splitlines() if line]
    settings = dict(line.split(" = ") for line in lines)
    (tmp_path / "cluster").mkdir()
    nodes = [FluffleNode(name, tmp_path / "cluster") for name in ("n1", "n2", "n3")]
    try:
        for node in nodes:
            node.configure(settings)
            node.launch()
        names = {node.name for node in nodes}
        for node in nodes:
            wait_until(lambda node=node: node.running() == names, f"{node.name} sees all nodes")
        assert len((tmp_path / "nodes").read_text().splitlines()) == 3
    finally:
        for node in nodes:
            node.stop()
