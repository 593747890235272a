"""Names of direct replies (amqp-behaviour §4.12); the way of a reply is in test_channel.py."""

from typing import cast

import pytest

from node.client.channel import Channel
from node.client.reply_to import ENTROPY_BYTES, REPLY_TO, ReplyConsumers, incarnation_of, is_reply_name

CHANNEL = cast(Channel, object())


def test_a_name_leads_to_its_consumer_until_it_is_removed() -> None:
    consumers = ReplyConsumers()
    consumer = consumers.add("tag", CHANNEL, bytes(range(ENTROPY_BYTES)), 0)
    assert (consumer.tag, consumer.channel) == ("tag", CHANNEL)
    assert consumers.find(consumer.name) is consumer
    consumers.remove(consumer)
    assert consumers.find(consumer.name) is None


def test_the_name_is_a_shortstr_of_rabbitmqs_shape() -> None:
    """§4.12: `amq.rabbitmq.reply-to.<opaque>.<key>`, about 87 characters of base64."""
    name = ReplyConsumers().add("t", CHANNEL, bytes(range(ENTROPY_BYTES)), 0).name
    where, key = name.removeprefix(f"{REPLY_TO}.").split(".")
    assert len(name) < 100
    assert len(where) >= 32
    assert len(key) >= 22


def test_every_random_byte_counts() -> None:
    names = set()
    for place in range(ENTROPY_BYTES):
        entropy = bytearray(ENTROPY_BYTES)
        entropy[place] = 1
        names.add(ReplyConsumers().add("t", CHANNEL, bytes(entropy), 0).name)
    assert len(names) == ENTROPY_BYTES


@pytest.mark.parametrize("incarnation", [0, 1, 258, 2**63])
def test_a_name_says_which_start_of_which_node_made_it(incarnation: int) -> None:
    """A reply name tells the incarnation that made it, so that a replier on another node finds the way."""
    name = ReplyConsumers().add("t", CHANNEL, bytes(range(ENTROPY_BYTES)), incarnation).name
    assert incarnation_of(name) == incarnation


@pytest.mark.parametrize("name", [REPLY_TO, f"{REPLY_TO}.", f"{REPLY_TO}.*.x", f"{REPLY_TO}.é.x", "q"])
def test_a_name_that_nobody_made_is_of_no_node(name: str) -> None:
    assert incarnation_of(name) == 0


def test_an_unknown_name_leads_nowhere() -> None:
    assert ReplyConsumers().find(f"{REPLY_TO}.x.y") is None


@pytest.mark.parametrize(
    ("name", "is_one"), [(REPLY_TO, True), (f"{REPLY_TO}.a.b", True), ("amq.rabbitmq", False), ("", False)]
)
def test_names_that_belong_to_direct_reply_to(name: str, is_one: bool) -> None:
    assert is_reply_name(name) is is_one
