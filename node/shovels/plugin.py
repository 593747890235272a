"""The plug-in `rabbitmq_shovel`. The shovels themselves run in `node.io.shovels`."""

from typing import Final

from node.plugins import VERSION, Plugin

PLUGIN: Final = Plugin("rabbitmq_shovel", VERSION, "shovels, which move messages from one broker to another")
