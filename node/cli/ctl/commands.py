"""This table has all commands of the command line tools but those of `rabbitmq-plugins`, and why others are missing.

Each is one row of a table in a file of its own kind. Source: management §3.2.
"""

from typing import Final

from node.cli.ctl.access_commands import ACCESS, VIRTUAL_HOSTS
from node.cli.ctl.command import Command, commands, words
from node.cli.ctl.definition_commands import DEFINITIONS
from node.cli.ctl.federation_commands import FEDERATION
from node.cli.ctl.health_commands import HEALTH
from node.cli.ctl.list_commands import LISTINGS
from node.cli.ctl.node_commands import NODES
from node.cli.ctl.parameter_commands import PARAMETERS
from node.cli.ctl.protocol_commands import PROTOCOL_CLIENTS
from node.cli.ctl.queue_commands import QUEUES
from node.cli.ctl.runtime_commands import RUNTIME
from node.cli.ctl.shovel_commands import SHOVELS
from node.cli.ctl.user_commands import USERS
from node.operations import delayed, policies

COMMANDS: Final[dict[str, Command]] = {
    **NODES,
    **USERS,
    **ACCESS,
    **QUEUES,
    **LISTINGS,
    **PROTOCOL_CLIENTS,
    **commands(delayed.DELAYED),
    **SHOVELS,
    **FEDERATION,
    **HEALTH,
    **RUNTIME,
    **PARAMETERS,
    **commands(policies.POLICIES),
    **VIRTUAL_HOSTS,
    **DEFINITIONS,
}

ERLANG_ONLY: Final = words(
    """
    erlang_cookie_hash erlang_cookie_sources eval eval_file exec hipe_compile maybe_stuck
    observer remote_shell resolver_info runtime_thread_stats schema_info
    """
)
"""RabbitMQ's commands for Erlang's runtime, which this broker does not have."""

OTHER_WAY: Final = {
    "force_boot": "a cluster continues when a majority of its disk nodes runs: start those, or remove lost ones with "
    "'forget_cluster_node --offline'",
    "rename_cluster_node": "have the node leave by 'reset', and join under its new name",
    "update_cluster_nodes": "a node learns from the others which nodes are in the cluster when it starts",
    "reclaim_quorum_memory": "quorum queues keep no log in memory",
    "grow": "the nodes of a quorum queue follow from the nodes of the cluster",
    "shrink": "the nodes of a quorum queue follow from the nodes of the cluster: remove the node with "
    "'forget_cluster_node'",
    "add_member": "the nodes of a quorum queue follow from the nodes of the cluster",
    "delete_member": "the nodes of a quorum queue follow from the nodes of the cluster",
    "disable_feature_flag": "feature flags cannot be disabled, as in RabbitMQ",
}
"""RabbitMQ's commands that are not needed here, and what to do instead."""

NOT_BUILT: Final = words(
    """
    consume_event_stream decode disable_auth_attempt_source_tracking enable_auth_attempt_source_tracking encode
    list_ciphers list_network_interfaces peek reset_stats_db stream_status
    """
)
"""RabbitMQ's commands that this version does not have yet."""
