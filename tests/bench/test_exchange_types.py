"""The workload of consistent hashing: its messages, and how a plug-in is enabled on either broker."""

from bench.exchange_types import KEY_COUNT, QUEUE_COUNT, hash_messages
from bench.servers import RabbitMQ
from node.plugins import Binding, Destination, Message, Surroundings
from node.plugins.exchanges.consistent_hash import PLUGIN, REMEMBERED_MAX


def test_keys_are_distinct_and_of_one_length() -> None:
    messages = hash_messages()
    keys = {message.routing_key for message in messages}
    assert len(keys) == len(messages) == KEY_COUNT < REMEMBERED_MAX
    assert len({len(key) for key in keys}) == 1


def test_the_keys_reach_every_queue() -> None:
    index = PLUGIN.exchange_types[0].index({}, Surroundings(lambda _: 0, lambda _: True, lambda _: True))
    for queue in range(QUEUE_COUNT):
        index.bind(Binding("/", "e", "queue", f"q{queue}", "1"))
    found = {
        destination
        for message in hash_messages()
        for destination in index.route(Message([message.routing_key]))
    }
    assert found == {Destination("queue", f"q{queue}") for queue in range(QUEUE_COUNT)}


def test_a_plugin_is_enabled_by_the_brokers_own_tool() -> None:
    rabbit = RabbitMQ()
    assert rabbit.plugins_command()[-2:] == ["-n", rabbit.node_name]
    assert rabbit.plugins_command()[0].endswith("rabbitmq-plugins")
