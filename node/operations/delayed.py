"""The operations on messages that wait in a delayed exchange. They are Fluffle's own."""

from typing import Final

from node.operations.operation import Operation, Table

DELAYED: Final = Table(
    "Queues",
    (
        Operation(
            "cancel_delayed",
            "--vhost=/ exchange message:number",
            "Drops a message that waits in a delayed exchange; list_delayed shows its id",
            "Dropping message {message} of exchange '{exchange}' in vhost '{vhost}' ...",
        ),
        Operation(
            "list_delayed",
            "--vhost=/ --first:number=0 --count:number=100 exchange",
            "Lists messages that wait in a delayed exchange, by their ids, from --first on",
            "Listing delayed messages of exchange '{exchange}' in vhost '{vhost}' ...",
            shows=("id", "due", "routing_key", "payload_bytes"),
        ),
    ),
)
