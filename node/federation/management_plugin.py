"""The plug-in `rabbitmq_federation_management`: links in the HTTP API, and a page of the web UI.

Both are parts of `node.management`, which are there while this plug-in is enabled.
"""

from typing import Final

from node.plugins import VERSION, Plugin

NAME: Final = "rabbitmq_federation_management"

PLUGIN: Final = Plugin(NAME, VERSION, "federation in the HTTP API and the web UI")
