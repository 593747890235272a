"""The operations on queues and their mirrors. Source: management §3.2, §3.3; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import BOTH, CTL, LONG_TIMEOUT_S, Operation, Table
from node.operations.operation import QUEUES as QUEUES_TOOL

_MONITORING: Final = "Monitoring, observability and health checks"

QUEUES: Final = Table(
    "Replication",
    (
        Operation(
            "browse_queue",
            "--vhost=/ --first:number=1 --count:number=20 queue",
            "Shows ready messages of a queue, from a number on, without a change to it",
            "Messages of queue '{queue}' in vhost '{vhost}' ...",
            "[--vhost <vhost>] <queue> [--first <number>] [--count <count>]",
            section="Queues",
        ),
        Operation(
            "cancel_sync_queue",
            "--vhost=/ queue",
            "Instructs a synchronising mirrored queue to stop synchronising itself",
            "Stopping synchronising queue '{queue}' in vhost '{vhost}' ...",
        ),
        Operation(
            "delete_queue",
            "--vhost=/ --if-empty --if-unused queue",
            "Deletes a queue",
            usage="[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u]",
            section="Queues",
        ),
        Operation(
            "list_queues",
            "--vhost? --which:any=all columns*",
            "Lists queues and their properties",
            "Timeout: {timeout_s:.1f} seconds ...\nListing queues for vhost {vhost} ...",
            "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...]"
            " [--timeout <timeout>]",
            tools=BOTH,
            section=_MONITORING,
        ),
        Operation(
            "list_rings",
            "--vhost?",
            "Lists mirrored queues: their copies in the order of the ring, and how far each is synchronised",
            "Listing rings of mirrored queues for vhost {vhost} ...",
            "[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
            tools=BOTH,
            section=_MONITORING,
        ),
        Operation("move_queue", "--vhost=/ queue node"),
        Operation(
            "purge_queue",
            "--vhost=/ queue",
            "Purges a queue (removes all messages in it)",
            "Purging queue '{queue}' in vhost '{vhost}' ...",
            section="Queues",
        ),
        Operation(
            "rebalance",
            "--vhost-pattern=.* --queue-pattern=.* type",
            "Re-balances leaders of replicated queues across up-and-running cluster nodes",
            "Re-balancing leaders of {type} queues...",
            "< all | classic | quorum > [--vhost-pattern <pattern>] [--queue-pattern <pattern>]",
            tools=QUEUES_TOOL | CTL,
            is_slow=True,
            timeout_s=LONG_TIMEOUT_S,
        ),
        Operation(
            "replay_dead_letters",
            "--vhost=/ --user=guest --reason? --died-in? --header? --value? --count:number=0 --rate:number=0"
            " --count-only queue",
            "Sends dead letters back to the queues in which they died",
            "Replaying dead letters of queue '{queue}' in vhost '{vhost}' ...",
            "[--vhost <vhost>] <queue> [--user <user>] [--reason <reason>] [--died-in <queue>]"
            " [--header <name> [--value <text>]] [--count <count>] [--rate <per second>] [--count-only]",
            section="Queues",
        ),
        Operation(
            "sync_queue",
            "--vhost=/ queue",
            "Instructs a mirrored queue with unsynchronised mirrors (follower replicas) to synchronise them",
            "Synchronising queue '{queue}' in vhost '{vhost}' ...",
            is_slow=True,
            timeout_s=LONG_TIMEOUT_S,
        ),
    ),
)
