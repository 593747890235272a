"""Feature flags, by RabbitMQ's names. All are enabled from the start, but for those of features that we do not have.

Source: management §1.10 (the names of 3.10).
"""

from typing import Final

from node.admin.admin import AdminError
from node.definitions.rows import Row

UNSUPPORTED: Final = "unsupported"

_FLAGS: Final = {
    "classic_mirrored_queue_version": "Mirrored classic queues accept a queue version",
    "drop_unroutable_metric": "Messages that are dropped for lack of a route are counted",
    "empty_basic_get_metric": "Fetches from empty queues are counted",
    "implicit_default_bindings": "Bindings to the default exchange are not stored",
    "maintenance_mode_status": "Nodes can be put into maintenance mode",
    "quorum_queue": "Queues of type quorum",
    "stream_queue": "Queues of type stream",
    "user_limits": "Limits of connections and channels by user",
    "virtual_host_metadata": "Virtual hosts have descriptions and tags",
}
_UNAVAILABLE: Final = frozenset({"stream_queue"})


def feature_flags() -> list[Row]:
    """Return all flags, by name."""
    return [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "unavailable" if name in _UNAVAILABLE else "enabled",
            "stability": "stable",
            "provided_by": "rabbit",
        }
        for name, text in _FLAGS.items()
    ]


def enable(name: str) -> None:
    """Check that a flag is enabled, as all are. Raises: AdminError if it does not exist here."""
    if name not in _FLAGS or name in _UNAVAILABLE:
        raise AdminError("invalid", UNSUPPORTED)
