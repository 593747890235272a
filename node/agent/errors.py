"""What an operator is told when something cannot be done, in RabbitMQ's words where it has them.

Source: rabbit_mnesia.erl (error_description), rabbitmqctl.ex, join_cluster_command.ex, forget_cluster_node_command.ex
of v3.13.7; management §3.1 (exit codes).
"""

from typing import Final

from node.io.control import EX_SOFTWARE, EX_UNAVAILABLE, ControlError

EX_DATAERR: Final = 65

NOT_A_MEMBER: Final = "The node selected is not in the cluster."
ONLY_DISC_NODE_JOINS: Final = (
    "You cannot cluster a node if it is the only disc node in its existing  cluster. If new nodes joined while "
    "this node was offline, use 'update_cluster_nodes' to add them manually."
)
ONLY_DISC_NODE_RESETS: Final = (
    "You cannot reset a node when it is the only disc node in a cluster. "
    "Please convert another node of the cluster to a disc node first."
)
NOT_CLUSTERED: Final = "Non-clustered nodes can only be disc nodes."
NO_RUNNING_NODES: Final = "You cannot leave a cluster if no online nodes are present."
NO_ONLINE_NODES: Final = "Could not find any online cluster nodes."
NO_MAJORITY: Final = "the cluster has no majority of its disk nodes: metadata cannot be changed"
QUEUE_NOT_FOUND: Final = "not_found"
NOT_MIRRORED: Final = "not_mirrored"
NOT_SYNCING: Final = "not_syncing"
QUORUM_NOT_SUPPORTED: Final = "quorum_queue_not_supported"
REBALANCE_IN_PROGRESS: Final = "rebalance_in_progress"
NO_JSON: Final = "JSON decoding error. Reason: badarg"


def refused(text: str) -> ControlError:
    """A rule is against it. Among nodes this tells a refusal from a node that could not be asked."""
    return ControlError(EX_SOFTWARE, text)


class WithItself(ControlError):
    """A node is told to join itself."""


def as_rabbitmqctl(error: ControlError) -> ControlError:
    """What the command line ends with: rabbitmqctl 3.10.8 says of nearly all refusals that the node is unavailable."""
    if error.exit_code == EX_SOFTWARE and not isinstance(error, WithItself):
        return ControlError(EX_UNAVAILABLE, error.text)
    return error


def unavailable(text: str) -> ControlError:
    """It cannot be done now."""
    return ControlError(EX_UNAVAILABLE, text)


def still_running(node: str) -> ControlError:
    """A node that is to be forgotten runs."""
    return refused(
        f"RabbitMQ on node {node} must be stopped with 'rabbitmqctl -n {node} stop_app' before it can be removed"
    )


def with_itself(node: str) -> ControlError:
    """A node is told to join itself."""
    return WithItself(EX_SOFTWARE, f"Error: cannot cluster node with itself: {node}")


def disagrees(thinker: str, dissident: str) -> str:
    """A node believes in a membership that the other has ended, or never had."""
    return f"Node '{thinker}' thinks it's clustered with node '{dissident}', but '{dissident}' disagrees"


def other_directory(member: str, name: str, *, is_up: bool) -> str:
    """A node with a member's name asks to be taken in, and is not that member."""
    if is_up:
        return (
            f"there is a node '{name}' in the cluster already, with another data directory, and it runs: "
            "one of the two needs another name"
        )
    return f"{disagrees(member, name)}: if its former data directory is lost, use forget_cluster_node {name} first"


def too_few_online(node: str) -> ControlError:
    """await_online_nodes did not see them in time."""
    return refused(f"Error: timed out while waiting. Not enough nodes joined {node}'s cluster.")
