"""Errors of operators' commands have RabbitMQ's texts where it has them.

Source: rabbitmqctl.ex of v3.13.7; management §3.1 (exit codes).
"""

from typing import Final

from node.clustering.errors import NOT_A_MEMBER as NOT_A_MEMBER
from node.clustering.errors import WithItself
from node.io.control import EX_SOFTWARE, EX_UNAVAILABLE, ControlError
from node.io.control import refused as refused
from node.io.control import unavailable as unavailable

QUEUE_NOT_FOUND: Final = "not_found"
NOT_MIRRORED: Final = "not_mirrored"
QUORUM_NOT_SUPPORTED: Final = "quorum_queue_not_supported"
REBALANCE_IN_PROGRESS: Final = "rebalance_in_progress"
NO_JSON: Final = "JSON decoding error. Reason: badarg"


def as_rabbitmqctl(error: ControlError) -> ControlError:
    """Return the command line's error: rabbitmqctl 3.10.8 reports nearly all refusals as "unavailable"."""
    if error.exit_code == EX_SOFTWARE and not isinstance(error, WithItself):
        return ControlError(EX_UNAVAILABLE, error.text)
    return error


def too_few_online(node: str) -> ControlError:
    """Return the error for an await_online_nodes that timed out."""
    return refused(f"Error: timed out while waiting. Not enough nodes joined {node}'s cluster.")
