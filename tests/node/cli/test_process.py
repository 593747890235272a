"""A whole node as a process: what an operator's service manager sees of it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from node.amqp import methods
from node.amqp.constants import PROTOCOL_HEADER
from tests.kit.amqp_client import Connection
from tests.kit.attack import deaf, flood, many, method, publish
from tests.kit.node_process import NodeProcess, TemporaryNode
from tests.kit.patience import patience
from tests.kit.ports import free_port
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.slow

SHUTDOWN_TEXT = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"

STOP_S = 10.0
"""2 s for the clients and 2 s for the log; the rest is for a busy machine."""


def run_to_the_end(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A node that isn't expected to start."""
    return subprocess.run(
        [sys.executable, "-m", "node", "start", "--management", "off", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30.0,
    )


def stuck_client(node: NodeProcess) -> Connection:
    """A client that asks for a megabyte many times over and reads nothing of it."""
    client = deaf(node)
    client.send_bytes(method(1, methods.QueueDeclare(queue="large", exclusive=True)))
    client.publish(1, "", "large", bytes(1_000_000))
    cycle = methods.BasicGet(queue="large"), methods.BasicNack(delivery_tag=0, multiple=True, requeue=True)
    flood(client.socket, many(1, cycle) * 100, seconds=5.0)
    return client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_with_clients_with_code_0(number: signal.Signals) -> None:
    """amqp-behaviour §1.8 row `node stop`: each client is told 320, then its socket ends."""
    with TemporaryNode() as node:
        assert re.fullmatch(r"fluffle: node t1@\S+ ready, amqp on 127\.0\.0\.1:\d+", node.ready_line)
        clients = [Connection(node) for _ in range(5)]
        for client in clients:
            channel = client.channel(1)
            channel.consume(channel.declare(exclusive=True))
        begin = time.monotonic()
        node.signal(number)
        for client in clients:
            client.expect_connection_close(320, SHUTDOWN_TEXT, None, answer=False)
            client.expect_end()
        assert node.wait() == 0
        assert time.monotonic() - begin < STOP_S * patience()
        log = node.log_text()
        assert "Traceback" not in log
        assert "Successfully stopped RabbitMQ and its dependencies" in log.splitlines()[-1]


def test_a_stuck_client_does_not_hold_up_the_stop() -> None:
    """One that reads nothing, one that has said half a header, one that waits for tune."""
    with TemporaryNode() as node:
        stuck = stuck_client(node)
        half = socket.create_connection((node.host, node.port), 10.0)
        half.sendall(PROTOCOL_HEADER[:5])
        waiting = Connection(node, open=False)
        waiting.start()
        well_behaved = Connection(node)
        begin = time.monotonic()
        node.signal(signal.SIGTERM)
        well_behaved.expect_connection_close(320, SHUTDOWN_TEXT, None, answer=False)
        assert node.wait() == 0
        assert time.monotonic() - begin < STOP_S * patience()
        assert "Traceback" not in node.log_text()
        for each in (stuck.socket, half, waiting.socket, well_behaved.socket):
            each.close()


def test_a_second_signal_while_it_stops_is_harmless() -> None:
    with TemporaryNode() as node:
        stuck = stuck_client(node)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ProcessLookupError):
                node.signal(number)
            time.sleep(0.2)
        assert node.wait() == 0
        assert "Traceback" not in node.log_text()
        stuck.socket.close()


def test_it_stops_in_the_middle_of_a_flood() -> None:
    """Publishers that never pause, and a storm of declares."""
    with TemporaryNode() as node:
        floods = [publish(1, bytes(100), routing_key="flood") * 500]
        floods.append(many(1, (methods.QueueDeclare(queue=f"storm-{n}", nowait=True) for n in range(5000))))
        threads = []
        for data in floods:
            client = Connection(node)
            client.channel(1).declare("flood", arguments={})
            threads.append(
                threading.Thread(
                    daemon=True, target=flood, args=(client.socket, data), kwargs={"seconds": 20.0}
                )
            )
            threads[-1].start()
        time.sleep(0.5)
        begin = time.monotonic()
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
        assert time.monotonic() - begin < STOP_S * patience()
        for thread in threads:
            thread.join(20.0)
        assert "Traceback" not in node.log_text()


def test_another_node_can_take_the_port_at_once() -> None:
    """Sockets of clients in TIME_WAIT are nobody's business."""
    with TemporaryNode() as node:
        address = f"{node.host}:{node.port}"
        clients = [Connection(node) for _ in range(3)]
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
    with TemporaryNode(listen=address) as node:
        Connection(node).close()
    for client in clients:
        client.socket.close()


def test_a_port_in_use_ends_with_code_69_and_leaves_nothing(tmp_path: Path) -> None:
    """Neither a listener that was opened before the one that failed, nor a process, nor a ready line."""
    config = tmp_path / "empty.conf"
    config.write_text("")
    free = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = run_to_the_end(
            "--data",
            str(tmp_path / "data"),
            "--config",
            str(config),
            "--listen",
            f"127.0.0.1:{free}",
            "--listen",
            f"127.0.0.1:{taken.getsockname()[1]}",
        )
        assert ended.returncode == 69
        assert ended.stdout == ""
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert ended.stderr == (
            f"fluffle: cannot start: clients cannot be accepted on {place}: Address already in use; give other "
            "addresses with --listen HOST:PORT (make run LISTEN=HOST:PORT) or in the configuration\n"
        )
        assert not (tmp_path / "data").exists()
        assert "Traceback" not in ended.stderr
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", free), 5.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("chanel_max = 5", "chanel_max"),
        ("channel_max = many", "channel_max"),
        ("listeners.tcp.default = 70000", "listeners.tcp.default"),
        ("ssl_options.certfile = /nowhere/cert.pem", "ssl_options.certfile"),
    ],
)
def test_a_bad_configuration_ends_with_code_78(tmp_path: Path, line: str, said: str) -> None:
    """The key and the line are named; nothing was opened or made."""
    config = tmp_path / "bad.conf"
    config.write_text(f"# a comment\n{line}\n")
    data = tmp_path / "data"
    ended = run_to_the_end("--data", str(data), "--config", str(config), "--listen", "127.0.0.1:0")
    assert ended.returncode == 78
    assert ended.stdout == ""
    assert said in ended.stderr
    assert re.search(r"bad\.conf\D+2\b", ended.stderr), ended.stderr
    assert not data.exists()


def test_a_bad_tls_key_ends_with_code_78(tmp_path: Path) -> None:
    """A bad key that is found only when the listener opens is the configuration's fault all the same."""
    certificate = tmp_path / "cert.pem"
    certificate.write_text("not a certificate\n")
    config = tmp_path / "tls.conf"
    config.write_text(
        f"listeners.ssl.default = 0\nssl_options.certfile = {certificate}\nssl_options.keyfile = {certificate}\n"
    )
    ended = run_to_the_end(
        "--data", str(tmp_path / "data"), "--config", str(config), "--listen", "127.0.0.1:0"
    )
    assert ended.returncode == 78, ended.stderr
    assert "ssl_options.certfile" in ended.stderr
    assert "Traceback" not in ended.stderr
