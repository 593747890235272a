"""The plug-in `rabbitmq_federation`: links to upstreams, and the exchange type that downstreams of this broker use.

The links themselves run in `node.io.federation`.
"""

from typing import Final

from node.federation.upstream_exchange import UpstreamExchange
from node.plugins import VERSION, Plugin

PLUGIN: Final = Plugin(
    "rabbitmq_federation",
    VERSION,
    "exchanges and queues that get messages from other brokers",
    (UpstreamExchange(),),
)
