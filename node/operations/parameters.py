"""The operations on runtime parameters. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import BOTH, Operation, Table

PARAMETERS: Final = Table(
    "Parameters",
    (
        Operation(
            "clear_global_parameter",
            "name",
            "Clears a global parameter",
            'Clearing global runtime parameter "{name}" ...',
        ),
        Operation(
            "clear_parameter",
            "--vhost=/ component name",
            "Clears a parameter of a component",
            'Clearing runtime parameter "{name}" for component "{component}" on vhost "{vhost}" ...',
        ),
        Operation(
            "list_global_parameters",
            "",
            "Lists global parameters",
            "Listing global runtime parameters ...",
            "[--timeout <timeout>]",
            tools=BOTH,
        ),
        Operation(
            "list_parameters",
            "--vhost=/",
            "Lists parameters in a virtual host",
            'Listing runtime parameters for vhost "{vhost}" ...',
            "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
            tools=BOTH,
        ),
        Operation(
            "set_global_parameter",
            "name value:json",
            "Sets a global parameter",
            'Setting global runtime parameter "{name}" to "{value}" ...',
        ),
        Operation(
            "set_parameter",
            "--vhost=/ component name value:json",
            "Sets a parameter of a component",
            'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{vhost}" ...',
        ),
    ),
)
