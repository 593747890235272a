"""Heartbeats in both directions (amqp-behaviour §1.6)."""

import pytest

from node.amqp.frames import HEARTBEAT, method_frame
from node.amqp.methods import (
    BasicQos,
    BasicQosOk,
)
from tests.node.broker.harness import World


def test_we_beat_every_half_interval() -> None:
    """§1.6: hb=2 → frames at 1 s spacing."""
    client = World().client(heartbeat=2)
    beats = []
    for tenth in range(1, 36):
        client.feed(HEARTBEAT)
        client.world.advance(0.1)
        beats += [tenth / 10 for item in client.received() if item.method is None]
    assert beats == [1.0, 2.0, 3.0]


def test_what_we_say_counts_as_a_beat() -> None:
    client = World().client(heartbeat=2)
    client.world.advance(1.5)
    client.received()
    client.feed(HEARTBEAT)
    assert client.ask(1, BasicQos()) == BasicQosOk()
    client.world.advance(1)
    assert client.received() == []
    client.world.advance(1)
    assert [item.method for item in client.received()] == [None]


def test_a_client_that_falls_silent_is_dropped() -> None:
    """§1.6: two successive checks without octets, total 2–3 intervals, no connection.close."""
    client = World().client(heartbeat=2)
    client.world.advance(5.9)
    assert not client.is_reset
    client.world.advance(0.2)
    assert client.is_reset
    assert all(item.method is None for item in client.received())
    assert client.world.diary.entries[-2:] == ["heartbeats missed", "closed in good order"]


@pytest.mark.parametrize("sign_of_life", [HEARTBEAT, method_frame(1, BasicQos()), b"\x08"])
def test_any_octets_are_a_sign_of_life(sign_of_life: bytes) -> None:
    client = World().client(heartbeat=2)
    for _ in range(7):
        client.world.advance(1.9)
        client.feed(sign_of_life)
    assert not client.is_reset


def test_no_heartbeats_with_0() -> None:
    """§1.4: 0 disables both directions."""
    client = World().client(heartbeat=0)
    client.world.advance(1000)
    assert client.received() == []
    assert not client.is_reset
