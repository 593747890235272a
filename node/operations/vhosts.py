"""The operations on vhosts, their limits and tracing. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import (
    BOTH,
    DIAGNOSTICS,
    EX_DATAERR,
    EX_SOFTWARE,
    EX_UNAVAILABLE,
    Operation,
    Refusal,
    Table,
)

_NOT_STARTED: Final = "Failed to start vhost '{0}' on node '{node}'Reason: {{:no_such_vhost, \"{0}\"}}"

VHOSTS: Final = Table(
    "Virtual hosts",
    (
        Operation(
            "add_vhost",
            "vhost --description= --tags:names= --default-queue-type=",
            "Creates a virtual host",
            'Adding vhost "{vhost}" ...',
            "<vhost> [--description <description>] [--tags <tag1>,<tag2>,<...>]"
            " [--default-queue-type <quorum|classic>]",
            refusals={"invalid_queue_type": Refusal(EX_UNAVAILABLE, "invalid_queue_type")},
        ),
        Operation(
            "check_virtual_hosts",
            "",
            "Checks that all virtual hosts work on this node",
            "Checking if all vhosts are running on node {node} ...",
            "[--timeout <timeout>]",
            tools=DIAGNOSTICS,
            section="Monitoring, observability and health checks",
        ),
        Operation(
            "clear_vhost_limits",
            "--vhost=/",
            "Clears limits of a virtual host",
            'Clearing vhost "{vhost}" limits ...',
        ),
        Operation(
            "delete_vhost",
            "vhost",
            "Deletes a virtual host and everything in it",
            'Deleting vhost "{vhost}" ...',
        ),
        Operation(
            "list_vhost_limits",
            "--vhost?",
            "Lists the limits of a virtual host, or of all virtual hosts",
            usage="[--vhost <vhost>] [--global] [--no-table-headers]",
            tools=BOTH,
        ),
        Operation(
            "list_vhosts",
            "columns*",
            "Lists virtual hosts",
            "Listing vhosts ...",
            tools=BOTH,
            section="Access Control",
        ),
        Operation(
            "restart_vhost",
            "--vhost=/",
            "Does nothing: here a virtual host does not fail while its node runs",
            "Trying to restart vhost '{vhost}' on node '{node}' ...",
            refusals={"no_such_vhost": Refusal(EX_SOFTWARE, _NOT_STARTED)},
        ),
        Operation(
            "set_vhost_limits",
            "--vhost=/ limits:json",
            "Sets limits of a virtual host",
            'Setting vhost limits to "{limits}" for vhost "{vhost}" ...',
            "[--vhost <vhost>] <definition>",
        ),
        Operation(
            "set_vhost_tags",
            "vhost tags*",
            "Sets tags of a virtual host",
            'Setting tags for virtual host "{vhost}" to [{tags}] ...',
            refusals={"no_such_vhost": Refusal(EX_DATAERR, 'Error:\nVirtual host "{0}" does not exist')},
        ),
        Operation(
            "trace_off",
            "--vhost=/",
            "Stops the tracing of a virtual host",
            'Stopping tracing for vhost "{vhost}" ...',
            calls="set_tracing",
            given={"is_on": False},
        ),
        Operation(
            "trace_on",
            "--vhost=/",
            "Copies each message of a virtual host to its exchange amq.rabbitmq.trace",
            'Starting tracing for vhost "{vhost}" ...',
            calls="set_tracing",
            given={"is_on": True},
        ),
    ),
)
