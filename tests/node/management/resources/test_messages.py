"""Messages over HTTP without sockets: bounds, encodings, refusals (management §2.4)."""

from typing import Any

import pytest

from node.amqp.properties import Properties
from node.management.resources import messages
from tests.kit.fake_site import Caller
from tests.kit.live_site import LiveSite, live

GET = "/api/queues/%2F/q/get"
PUBLISH = "/api/exchanges/%2F/amq.default/publish"
ASKED = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.fixture
def site_caller() -> tuple[LiveSite, Caller]:
    site, caller = live()
    assert caller.ask("PUT", "/api/queues/%2F/q", {}).status == 201
    return site, caller


def publish(caller: Caller, payload: str, encoding: str = "string", **properties: Any) -> None:
    body = {"properties": properties, "routing_key": "q", "payload": payload, "payload_encoding": encoding}
    assert caller.ask("POST", PUBLISH, body).value == {"routed": True}


def test_what_was_got_is_back_when_the_answer_is_there(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    publish(caller, "é", delivery_mode=2)
    for redelivered in (False, True):
        (found,) = caller.ask("POST", GET, ASKED).value
        assert found == {
            "payload_bytes": 2,
            "redelivered": redelivered,
            "exchange": "",
            "routing_key": "q",
            "message_count": 0,
            "properties": {"delivery_mode": 2},
            "payload": "é",
            "payload_encoding": "string",
        }
    assert not site.broker.direct_clients
    assert not site.broker.connections


def test_a_get_has_its_bounds(site_caller: tuple[LiveSite, Caller], monkeypatch: pytest.MonkeyPatch) -> None:
    """A get returns at most so many messages and so many bytes; a negative count asks for all."""
    _, caller = site_caller
    for _ in range(5):
        publish(caller, "12345")
    monkeypatch.setattr(messages, "GET_MAX", 3)
    for count in (-1, 100):
        assert len(caller.ask("POST", GET, {**ASKED, "count": count}).value) == 3
    monkeypatch.setattr(messages, "GET_BYTES_MAX", 6)
    assert len(caller.ask("POST", GET, ASKED).value) == 2
    monkeypatch.setattr(messages, "GET_BYTES_MAX", 1)
    assert len(caller.ask("POST", GET, ASKED).value) == 1


def test_bytes_that_are_no_text(site_caller: tuple[LiveSite, Caller]) -> None:
    site, caller = site_caller
    client = site.world.client()
    client.publish(1, "q", b"\xff", properties=Properties(type="\udcff"))
    site.world.settle()
    (found,) = caller.ask("POST", GET, ASKED).value
    assert (found["payload"], found["payload_encoding"]) == ("/w==", "base64")


@pytest.mark.parametrize(
    "change",
    [
        {"count": None},
        {"count": []},
        {"count": True},
        {"ackmode": "nope"},
        {"ackmode": 5},
        {"ackmode": []},
        {"encoding": 5},
        {"encoding": "string"},
        {"truncate": []},
        {"truncate": "x"},
    ],
)
def test_what_is_no_get(site_caller: tuple[LiveSite, Caller], change: dict[str, Any]) -> None:
    assert site_caller[1].ask("POST", GET, {**ASKED, **change}).status == 400


@pytest.mark.parametrize(
    "change",
    [
        {"payload": None},
        {"payload": {}},
        {"payload_encoding": []},
        {"payload_encoding": None},
        {"payload": "é", "payload_encoding": "base64"},
        {"properties": None},
        {"properties": "x"},
        {"routing_key": []},
        {"routing_key": "x" * 256},
    ],
)
def test_what_is_no_message(site_caller: tuple[LiveSite, Caller], change: dict[str, Any]) -> None:
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string", **change}
    assert site_caller[1].ask("POST", PUBLISH, body).status == 400


def test_a_name_that_amqp_cannot_say(site_caller: tuple[LiveSite, Caller]) -> None:
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    target = f"/api/exchanges/%2F/{'x' * 256}/publish"
    assert site_caller[1].ask("POST", target, body).status == 400
