"""The operations on shovels. Source: RabbitMQ 3.10.8, the commands of its plug-in."""

from typing import Final

from node.operations.operation import BOTH, EX_UNAVAILABLE, Operation, Refusal, Table

SHOVELS: Final = Table(
    "Shovel",
    (
        Operation(
            "delete_shovel",
            "--vhost=/ name",
            "Deletes a Shovel",
            "Deleting shovel {name} in vhost {vhost}",
            refusals={
                "no_such_shovel": Refusal(
                    EX_UNAVAILABLE, "Shovel with the given name was not found on the target node '{0}'"
                )
            },
        ),
        Operation(
            "restart_shovel",
            "--vhost=/ name",
            "Restarts a dynamic Shovel",
            "Restarting dynamic Shovel {name} in virtual host {vhost} on node {node}",
            refusals={
                "no_such_shovel": Refusal(
                    EX_UNAVAILABLE, "Shovel with the given name was not found on the target node '{0}'"
                )
            },
        ),
        Operation(
            "shovel_status",
            "",
            "Displays status of Shovel on a node",
            "Shovel status on node {node}",
            tools=BOTH,
        ),
    ),
)
