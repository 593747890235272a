"""Errors for a node that cannot be, become or stop being a member of a cluster have RabbitMQ's texts where it has them.

Source: rabbit_mnesia.erl (error_description), rabbitmqctl.ex, join_cluster_command.ex, forget_cluster_node_command.ex
of v3.13.7.
"""

from typing import Final

from node.io.control import EX_SOFTWARE, ControlError, refused

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


class GivenUp(Exception):
    """The start of a node was cancelled, as the node is to stop."""


class Unreached(ControlError):
    """Another node could not be asked: nothing answers at its address."""


class WithItself(ControlError):
    """A node was told to join itself."""


def still_running(node: str) -> ControlError:
    """Return the error for a node that is to be forgotten although it runs."""
    return refused(
        f"RabbitMQ on node {node} must be stopped with 'rabbitmqctl -n {node} stop_app' before it can be removed"
    )


def with_itself(node: str) -> ControlError:
    """Return the error for a node that is told to join itself."""
    return WithItself(EX_SOFTWARE, f"Error: cannot cluster node with itself: {node}")


def disagrees(thinker: str, dissident: str) -> str:
    """Return the text for a node that lists another one as a member of its cluster when the other one does not."""
    return f"Node '{thinker}' thinks it's clustered with node '{dissident}', but '{dissident}' disagrees"


def other_directory(member: str, name: str, *, is_up: bool) -> str:
    """Return the text for a node that asks to join under a member's name but has another node id.

    member: the member that refuses.   is_up: whether the member of that name runs.
    """
    if is_up:
        return (
            f"there is a node '{name}' in the cluster already, with another data directory, and it runs: "
            "one of the two needs another name"
        )
    return f"{disagrees(member, name)}: if its former data directory is lost, use forget_cluster_node {name} first"
