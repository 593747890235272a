"""Statements of the standard that no other test shows: docs/stomp_statements.md has them all."""

import re

import pytest

from node.stomp.frame import Frame, encode
from tests.kit.stomp_world import StompTestClient, connected, error
from tests.kit.world import World

MIME = re.compile(r"[a-z]+/[a-z0-9.+-]+")


def headers_of(frame: Frame) -> dict[str, str]:
    return frame.head.headers


def test_commands_and_names_of_headers_are_case_sensitive() -> None:
    """[STOMP-1.4]."""
    assert error(connected().ask("send", destination="/topic/a"))[0] == "Bad command"
    assert error(connected().ask("SEND", Destination="/topic/a"))[0] == "Missing destination"


def test_headers_come_back_as_they_were_sent() -> None:
    """[STOMP-2.1, STOMP-2.4, STOMP-2.5, STOMP-7.3]."""
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id=" 1:\\\n")
    own = {" padded ": "  both sides  ", "grün:": "\r\n\\", "empty": "", "blank": " "}
    client.feed(encode("SEND", [("destination", "/queue/a"), *own.items()], b"m"))
    (message,) = client.frames()
    assert headers_of(message)["subscription"] == " 1:\\\n"
    assert {name: headers_of(message)[name] for name in own} == own


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_an_undefined_escape_ends_the_connection(version: str) -> None:
    """[STOMP-2.3]: fatal, whatever the settings say."""
    client = connected(version=version, close_after_error="false")
    client.feed(b"SEND\ndestination:/topic/a\nx:\\t\n\nm\0SEND\ndestination:/queue/a\n\nm\0")
    (frame,) = client.frames()
    assert error(frame)[0] == "Bad frame"
    assert client.is_reset
    assert client.world.queue_names == set()


def test_frames_of_the_node_have_the_headers_of_the_standard() -> None:
    """[STOMP-3.1, STOMP-4.3, STOMP-4.4, STOMP-4.5, STOMP-8.2]."""
    client = StompTestClient(World())
    answer = client.connect()
    assert (answer.head.command, answer.body) == ("CONNECTED", b"")
    receipt = client.ask("SUBSCRIBE", destination="/queue/a", id="1", receipt="r")
    assert (receipt.head.command, receipt.body) == ("RECEIPT", b"")
    for _ in range(3):
        client.send("SEND", b"abc", destination="/queue/a", content_type="text/csv")
    messages = client.frames()
    assert {headers_of(message)["content-length"] for message in messages} == {"3"}
    assert {headers_of(message)["content-type"] for message in messages} == {"text/csv"}
    assert len({headers_of(message)["message-id"] for message in messages}) == 3
    fault = client.ask("FOO")
    assert headers_of(fault)["content-length"] == str(len(fault.body))
    assert MIME.fullmatch(headers_of(fault)["content-type"])


def test_each_frame_may_have_a_receipt() -> None:
    """[STOMP-4.7, STOMP-8.6, STOMP-8.7]: receipts come in the order of their frames here, as nothing has to wait."""
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client-individual")
    for _ in range(2):
        client.send("SEND", b"m", destination="/queue/a")
    acks = [headers_of(message)["ack"] for message in client.frames()]
    sent: list[tuple[str, dict[str, str]]] = [
        ("SUBSCRIBE", {"destination": "/topic/a", "id": "2"}),
        ("SEND", {"destination": "/topic/nobody"}),
        ("ACK", {"id": acks[0]}),
        ("NACK", {"id": acks[1], "requeue": "false"}),
        ("BEGIN", {"transaction": "t"}),
        ("SEND", {"destination": "/topic/nobody", "transaction": "t"}),
        ("COMMIT", {"transaction": "t"}),
        ("BEGIN", {"transaction": "u"}),
        ("ABORT", {"transaction": "u"}),
        ("UNSUBSCRIBE", {"id": "2"}),
        ("DISCONNECT", {}),
    ]
    for number, (command, headers) in enumerate(sent):
        client.send(command, receipt=f"{number} {command}", **headers)
    frames = client.frames()
    assert {frame.head.command for frame in frames} == {"RECEIPT"}
    receipts = [headers_of(frame)["receipt-id"] for frame in frames]
    assert sorted(receipts) == sorted(f"{number} {command}" for number, (command, _) in enumerate(sent))
    assert receipts[-1] == "10 DISCONNECT"
    assert client.is_reset


def test_a_body_has_a_bound() -> None:
    """[STOMP-4.9]."""
    client = connected()
    client.feed(b"SEND\ndestination:/topic/a\ncontent-length:99999999999\n\n")
    (frame,) = client.frames()
    assert error(frame)[0] == "Bad frame"
    assert client.is_reset


@pytest.mark.parametrize("headers", [{"passcode": "wrong"}, {"host": "nowhere"}, {"accept_version": "3.0"}])
def test_refused_logins_end_the_connection(headers: dict[str, str]) -> None:
    """[STOMP-5.2, STOMP-5.12]."""
    client = StompTestClient(World())
    assert client.connect(**headers).head.command == "ERROR"
    client.world.advance(3.1)
    assert client.is_reset


def test_the_server_has_a_name_and_a_version() -> None:
    """[STOMP-5.9]."""
    assert re.fullmatch(r"\w+/[\d.]+\w*", headers_of(StompTestClient(World()).connect())["server"])


def test_frames_are_signs_of_life() -> None:
    """[STOMP-6.4]."""
    client = StompTestClient(World())
    client.connect(heart_beat="1000,0")
    for _ in range(5):
        client.world.advance(1.5)
        client.send("SEND", destination="/topic/nobody")
        client.world.settle()
    assert not client.is_reset
    client.world.advance(3.0)
    assert client.is_reset


def test_what_a_lost_client_has_not_acknowledged_is_delivered_again() -> None:
    """[STOMP-7.14]."""
    world = World()
    client, other = connected(world), connected(world)
    client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client")
    for number in range(3):
        client.send("SEND", b"%d" % number, destination="/queue/a")
    client.send("ACK", id=headers_of(client.frames()[0])["ack"])
    world.settle()
    client.lose()
    other.send("SUBSCRIBE", destination="/queue/a", id="1")
    messages = other.frames()
    assert [message.body for message in messages] == [b"1", b"2"]
    assert {headers_of(message)["redelivered"] for message in messages} == {"true"}


def test_a_nack_gives_back_all_before_it() -> None:
    """[STOMP-7.23]: with `ack:client`."""
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client")
    for number in range(3):
        client.send("SEND", b"%d" % number, destination="/queue/a")
    messages = client.frames()
    client.send("NACK", id=headers_of(messages[1])["ack"])
    assert [message.body for message in client.frames()] == [b"0", b"1"]
    client.send("NACK", id=headers_of(messages[2])["ack"], requeue="false")
    client.world.settle()
    assert client.world.queue("a").unacked_count == 2


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_end_aborts_open_transactions(is_lost: bool) -> None:
    """[STOMP-7.27]."""
    client = connected()
    client.done("SUBSCRIBE", destination="/queue/a", id="1", ack="client-individual")
    client.send("SEND", b"first", destination="/queue/a")
    (message,) = client.frames()
    client.done("BEGIN", transaction="t")
    client.send("SEND", b"never", destination="/queue/a", transaction="t")
    client.send("ACK", id=headers_of(message)["ack"], transaction="t")
    client.world.settle()
    if is_lost:
        client.lose()
    else:
        client.done("DISCONNECT")
    client.world.settle()
    other = connected(client.world)
    other.send("SUBSCRIBE", destination="/queue/a", id="1")
    assert [message.body for message in other.frames()] == [b"first"]


def test_what_a_lost_client_has_sent_is_carried_out() -> None:
    """[STOMP-8.8]."""
    client = connected()
    client.done("SEND", b"m", destination="/queue/a")
    client.feed(b"SEND\ndestination:/queue/a\n\nm\0" * 100 + b"SEND\ndestination:/queue/a\n\nno end")
    client.lose()
    client.world.settle()
    assert client.world.queue("a").backlog.count == 101


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("SEND", {"destination": "/exchange/none/a"}),
        ("SEND", {"destination": "/nowhere/at/all"}),
        ("SUBSCRIBE", {"destination": "/amq/queue/none", "id": "1"}),
        ("SUBSCRIBE", {"id": "1"}),
        ("ACK", {"id": "grün"}),
        ("COMMIT", {"transaction": "none"}),
        ("FOO", {}),
    ],
)
def test_errors_name_what_they_are_about(command: str, headers: dict[str, str]) -> None:
    """[STOMP-4.6, STOMP-8.9, STOMP-8.11]: what the queue or exchange refuses is known by its text alone."""
    client = connected()
    frame = client.ask(command, receipt="a:b", **headers)
    assert error(frame)[0]
    assert frame.body.decode()
    if error(frame)[0] != "not_found":
        assert headers_of(frame)["receipt-id"] == "a:b"
    assert client.is_reset
