"""The operations on federation links. Source: RabbitMQ 3.10.8, the commands of its plug-in."""

from typing import Final

from node.operations.operation import BOTH, EX_UNAVAILABLE, Operation, Refusal, Table

FEDERATION: Final = Table(
    "Federation",
    (
        Operation(
            "federation_status",
            "--only-down",
            "Displays federation link status",
            "Listing federation links on node {node}...",
            tools=BOTH,
        ),
        Operation(
            "restart_federation_link",
            "link_id",
            "Restarts a running federation link",
            "Restarting federation link {link_id} on node {node}",
            refusals={"no_such_link": Refusal(EX_UNAVAILABLE, "Link with the given ID was not found")},
        ),
    ),
)
