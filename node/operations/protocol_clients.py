"""The operations that list the clients of plug-ins' protocols. Source: RabbitMQ 3.10.8, its plug-ins' commands."""

from typing import Final

from node.operations.operation import Operation, Table

PROTOCOL_CLIENTS: Final = Table(
    "Monitoring, observability and health checks",
    (
        Operation(
            "list_stomp_connections",
            "columns*",
            "Lists STOMP connections on all nodes; clients over WebSocket are in list_connections",
            "Listing STOMP connections ...",
            "[--verbose] [<column> ...]",
        ),
        Operation(
            "list_mqtt_connections",
            "columns*",
            "Lists MQTT connections on all nodes; clients over WebSocket are in list_connections",
            "Listing MQTT connections ...",
            "[--verbose] [<column> ...]",
        ),
    ),
)
