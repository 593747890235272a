"""A node's life has phases; an operation that is impossible in the present phase is refused with a reason.

    opening ─► starting ─► running ─► stopping ─► stopped ─► starting …
                  ▲ waiting    ▲ paused                               ─► ending, at any time

The first words are RabbitMQ's, as scripts look for them.
"""

from typing import Final, Literal

from node.io.control import EX_UNAVAILABLE, EX_USAGE, ControlError

Phase = Literal["opening", "starting", "waiting", "running", "paused", "stopping", "stopped", "ending"]
"""opening: the process has begun, its broker not. waiting: a start needs other nodes. paused: the broker was
stopped because the node is cut off from the others. ending: the process ends."""

_NEEDS_BROKER: Final = "this command requires the 'rabbit' app to be running on the target node"
_NEEDS_NO_BROKER: Final = "this command requires the 'rabbit' app to be stopped on the target node"
_STILL_STARTING: Final = "which is still starting: 'rabbitmqctl await_startup' first"
_STOPPING: Final = "whose app is being stopped: try again when it is"


def ending() -> ControlError:
    """Return the error for any operation while the process ends."""
    return ControlError(EX_UNAVAILABLE, "the node is stopping: it takes no more commands")


def still_opening() -> ControlError:
    """Return the error for an operation that comes before the process is ready for it."""
    return ControlError(EX_USAGE, f"this command is too early for the target node, {_STILL_STARTING}")


def not_running(phase: Phase, waits_for: str = "") -> ControlError:
    """Return the error for an operation that needs the broker to run.   waits_for: see `Agent.waits_for`."""
    if phase == "ending":
        return ending()
    why = {
        "opening": f", {_STILL_STARTING}.",
        "starting": f", {_STILL_STARTING}.",
        "waiting": f", which {waits_for}.",
        "paused": f", which is cut off from the others and pauses{': it ' if waits_for else ''}{waits_for}.",
        "stopping": f", {_STOPPING}.",
    }.get(phase, ". Start it with 'rabbitmqctl start_app'.")
    return ControlError(EX_USAGE, _NEEDS_BROKER + why)


def not_stopped(phase: Phase) -> ControlError:
    """Return the error for an operation that needs the broker to be stopped."""
    if phase == "ending":
        return ending()
    why = {
        "opening": f", {_STILL_STARTING}.",
        "starting": f", {_STILL_STARTING}, then 'rabbitmqctl stop_app'.",
        "waiting": f", {_STILL_STARTING}, or end the start with 'rabbitmqctl stop_app'.",
        "stopping": f", {_STOPPING}.",
    }.get(phase, ". Stop it with 'rabbitmqctl stop_app'.")
    return ControlError(EX_USAGE, _NEEDS_NO_BROKER + why)
