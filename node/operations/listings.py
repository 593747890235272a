"""The operations that list objects and clients' activity, and close connections.

Source: management §3.2, §3.3; RabbitMQ 3.10.8's output.
"""

from typing import Final

from node.operations.operation import BOTH, LONG_TIMEOUT_S, Operation, Table

_FLAGS: Final = "Feature flags"
_OPERATIONS: Final = "Operations"

LISTINGS: Final = Table(
    "Monitoring, observability and health checks",
    (
        Operation(
            "list_bindings",
            "--vhost=/ columns*",
            "Lists bindings in a virtual host",
            "Listing bindings for vhost {vhost}...",
            tools=BOTH,
        ),
        Operation(
            "list_channels", "columns*", "Lists channels of all clients", "Listing channels ...", tools=BOTH
        ),
        Operation(
            "list_connections",
            "columns*",
            "Lists clients' connections",
            "Listing connections ...",
            tools=BOTH,
        ),
        Operation(
            "list_consumers",
            "--vhost=/ columns*",
            "Lists consumers in a virtual host",
            "Listing consumers in vhost {vhost} ...",
            tools=BOTH,
        ),
        Operation(
            "list_exchanges",
            "--vhost=/ columns*",
            "Lists exchanges in a virtual host",
            "Listing exchanges for vhost {vhost} ...",
            tools=BOTH,
        ),
        Operation(
            "list_feature_flags",
            "columns*",
            "Lists feature flags; all flags of this version are enabled",
            "Listing feature flags ...",
            tools=BOTH,
            section=_FLAGS,
        ),
        Operation(
            "enable_feature_flag",
            "name",
            "Enables a feature flag",
            usage="<all | feature_flag>",
            section=_FLAGS,
        ),
        Operation(
            "list_node_auth_attempt_stats",
            "--by-source",
            "Lists counts of login attempts",
            'Listing authentication\n attempts for node "{node}" ...',
            tools=BOTH,
        ),
        Operation(
            "list_unresponsive_queues",
            "--vhost=/",
            "Lists queues whose node does not answer in time",
            "Listing unresponsive queues for vhost {vhost} ...",
            "[--local] [--queue-timeout <milliseconds>] [<column> ...] [--timeout <timeout>]",
            tools=BOTH,
        ),
        Operation(
            "close_all_connections",
            "--vhost? --limit:number=0 --delay-ms:number=0 reason",
            "Closes all connections in a virtual host, or with --global those to this node",
            usage="[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay <delay>]"
            " <explanation>",
            section=_OPERATIONS,
            is_slow=True,
            timeout_s=LONG_TIMEOUT_S,
        ),
        Operation(
            "close_all_user_connections",
            "user reason",
            "Closes all connections of a user",
            "Closing connections of user {user}, reason: {reason}...",
            "<username> <explanation>",
            section=_OPERATIONS,
        ),
        Operation(
            "close_connection",
            "pid reason",
            "Closes the connection that list_connections shows with this pid",
            "Closing connection {pid}, reason: {reason}...",
            "<connection pid> <explanation>",
            section=_OPERATIONS,
        ),
    ),
)
