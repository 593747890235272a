"""The plug-ins `rabbitmq_shovel` and `rabbitmq_shovel_management`. The shovels themselves run in `node.io.shovels`."""

from typing import Final

from node.plugins import VERSION, Plugin

PLUGIN: Final = Plugin("rabbitmq_shovel", VERSION, "shovels, which move messages from one broker to another")

MANAGEMENT: Final = Plugin(
    "rabbitmq_shovel_management",
    VERSION,
    "shovels in the HTTP API and the web UI: rabbitmq_shovel is all of it",
)
