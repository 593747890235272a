"""STOMP on three nodes with mirrored queues: what has a receipt outlives kill -9 of the master's node."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.cluster_processes import (
    HOST,
    MemberProcess,
    cluster_processes,
    until,
    until_running,
)
from tests.kit.ports import free_ports
from tests.kit.stomp_client import StompClient

pytestmark = pytest.mark.slow

ALL = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
COUNT = 2000
WINDOW = 100


class StompMember(NamedTuple):
    """A node, and the port of its STOMP listener."""

    node: MemberProcess
    port: int

    def client(self) -> StompClient:
        """Return a connection that is logged in."""
        client = StompClient(HOST, self.port)
        assert client.connect().command == "CONNECTED"
        return client


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[StompMember]]:
    """Three nodes that mirror all queues, with the plug-in enabled on one of them, and so on all."""
    with cluster_processes(tmp_path) as processes:
        nodes = [processes.make(name) for name in ("n1", "n2", "n3")]
        formation = ",".join(node.seed for node in nodes)
        ports = free_ports(3)
        for node, port in zip(nodes, ports, strict=True):
            node.formation = formation
            node.launch({"stomp.listeners.tcp.default": f"{HOST}:{port}"})
        for node in nodes:
            node.wait_ready()
        for node in nodes:
            until_running(node, nodes)
        nodes[0].ask("set_policy", vhost="/", name="ha", pattern="", definition=ALL, apply_to="queues")
        nodes[0].ask("enable_plugin", plugin="rabbitmq_stomp")
        found = [StompMember(node, port) for node, port in zip(nodes, ports, strict=True)]
        for member in found:
            until(lambda port=member.port: _listens(port), f"{member.node.name} listens for STOMP")
        yield found


def _listens(port: int) -> bool:
    try:
        StompClient(HOST, port).close()
    except OSError:
        return False
    return True


class Sender(threading.Thread):
    """Sends numbered messages with receipts, at most `WINDOW` without one.   confirmed: those with a receipt."""

    def __init__(self, member: StompMember, destination: str) -> None:
        super().__init__(daemon=True)
        self._client = member.client()
        self._destination = destination
        self.confirmed: set[int] = set()
        self.is_half_done = threading.Event()
        self.fault: object = None

    def run(self) -> None:
        sent = 0
        try:
            while len(self.confirmed) < COUNT:
                while sent < COUNT and sent - len(self.confirmed) < WINDOW:
                    self._client.send(
                        "SEND", b"%d" % sent, destination=self._destination, persistent="true", receipt=sent
                    )
                    sent += 1
                frame = self._client.frame()
                assert frame.command == "RECEIPT", frame
                self.confirmed.add(int(frame.headers["receipt-id"]))
                if len(self.confirmed) == COUNT // 4:
                    self.is_half_done.set()
        except Exception as error:
            self.fault = error
            self.is_half_done.set()
            raise


def test_receipts_outlive_the_master(members: list[StompMember]) -> None:
    """Declared on one node, sent to on the second; the first is killed meanwhile; received on the third."""
    first, second, third = members
    destination = "/queue/orders"
    first.client().done("SEND", b"-1", destination=destination, persistent="true")
    sender = Sender(second, destination)
    sender.start()
    assert sender.is_half_done.wait(60)
    first.node.kill()
    sender.join(120)
    assert sender.fault is None
    assert len(sender.confirmed) == COUNT, "the receipts of all came, those after the failover too"
    receiver = third.client()
    receiver.send("SUBSCRIBE", destination=destination, id="1", ack="client-individual", prefetch_count="100")
    received: set[int] = set()
    while not sender.confirmed <= received:
        frame = receiver.frame()
        assert frame.command == "MESSAGE", frame
        received.add(int(frame.body))
        receiver.send("ACK", id=frame.headers["ack"])
    receiver.done("DISCONNECT")


def test_a_subscriber_goes_on_after_the_failover(members: list[StompMember]) -> None:
    """A client on a node that stays is given what is sent after the loss of the master, without a new subscription."""
    first, second, third = members
    first.client().done("SEND", b"first", destination="/queue/q", persistent="true")
    receiver = third.client()
    receiver.send("SUBSCRIBE", destination="/queue/q", id="1", ack="client")
    frame = receiver.frame()
    receiver.done("ACK", id=frame.headers["ack"])
    first.node.kill()
    second.client().done("SEND", b"second", destination="/queue/q", persistent="true")
    while (frame := receiver.frame()).body != b"second":
        assert frame.headers["redelivered"] == "true", "an ACK that mirrors did not know yet"


def test_a_durable_subscription_moves_to_another_node(members: list[StompMember]) -> None:
    first, second, third = members
    durable = {"durable": "true", "auto_delete": "false"}
    client = first.client()
    client.done("SUBSCRIBE", destination="/topic/news.*", id="mine", **durable)
    first.node.kill()
    second.client().done("SEND", b"meanwhile", destination="/topic/news.now", persistent="true")
    client = third.client()
    client.send("SUBSCRIBE", destination="/topic/news.*", id="mine", **durable)
    assert client.messages(1) == [b"meanwhile"]
