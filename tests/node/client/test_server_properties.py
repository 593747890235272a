"""`connection.start` carries the server properties of amqp-behaviour §1.2."""

from node.amqp.field_table import longstr
from node.broker.broker import Broker
from node.catalogue.commands import SetGlobalParameter
from node.client.server_properties import server_properties, text_properties
from node.client.settings import BrokerSettings


def test_server_properties() -> None:
    settings = BrokerSettings(node_name="n@h", server_properties=text_properties(product="RabbitMQ"))
    broker = Broker(settings, entropy=bytes)
    assert server_properties(broker)["cluster_name"] == longstr("n@h")
    assert server_properties(broker)["product"] == longstr("RabbitMQ")
    broker.log.submit(SetGlobalParameter("cluster_name", "mine"))
    assert server_properties(broker)["cluster_name"] == longstr("mine")
