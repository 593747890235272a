"""The commands that close connections and change a running node. Source: management §3.2; RabbitMQ 3.10.8's output."""

import re
from typing import Any, Final

from node.cli.ctl.command import Call, Command, NotHealthy, Refused
from node.operations.operation import CTL, DIAGNOSTICS, EX_DATAERR

# --- limits of memory and disk ---

_UNITS: Final = {
    "": 1,
    "k": 2**10,
    "kib": 2**10,
    "m": 2**20,
    "mib": 2**20,
    "g": 2**30,
    "gib": 2**30,
    "t": 2**40,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_AMOUNT: Final = re.compile(r"([0-9]{1,18})([a-zA-Z]{0,3})")
_BAD: Final = "Bad argument."


def _bytes(text: str) -> int:
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        raise Refused(_BAD, EX_DATAERR)
    return int(found[1]) * _UNITS[found[2].lower()]


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise Refused(_BAD, EX_DATAERR) from None
    if not 0.0 <= number < float("inf"):
        raise Refused(_BAD, EX_DATAERR)
    return number


def _of_keyword(call: Call, keyword: str) -> bool:
    """Whether it is the form with a keyword before the value. Raises: Refused."""
    has_keyword = call.words[0] == keyword
    if has_keyword and len(call.words) < 2:
        raise Refused("not enough arguments.")
    if not has_keyword and len(call.words) > 1:
        raise Refused("too many arguments.")
    return has_keyword


def _watermark(call: Call) -> dict[str, Any]:
    if _of_keyword(call, "absolute"):
        return {"absolute_bytes": _bytes(call.words[1])}
    try:
        number = float(call.words[0])
    except ValueError:
        raise Refused(_BAD, EX_DATAERR) from None
    if not 0.0 <= number <= 1.0:
        text = "Bad argument: The threshold should be a fraction between 0.0 and 1.0"
        raise Refused(text, EX_DATAERR)
    return {"relative": number}


def _banner_of_watermark(call: Call) -> str:
    value = f"{call.words[1]} bytes" if len(call.words) > 1 else call.words[0]
    return f"Setting memory threshold on {call.node} to {value} ..."


def _disk_limit(call: Call) -> dict[str, Any]:
    if _of_keyword(call, "mem_relative"):
        return {"relative": _fraction(call.words[1])}
    return {"absolute_bytes": _bytes(call.words[0])}


def _banner_of_disk(call: Call) -> str:
    value = f"{call.words[1]} times the total RAM" if len(call.words) > 1 else f"{call.words[0]} bytes"
    return f"Setting disk free limit on {call.node} to {value} ..."


# --- log ---

_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")


def _level(call: Call) -> dict[str, Any]:
    if call.words[0] not in _LEVELS:
        text = f"level {call.words[0]} is not supported. Try one of {', '.join(_LEVELS)}"
        raise NotHealthy(text)
    return {"level": call.words[0]}


_O: Final = "Operations"
_C: Final = "Configuration and Environment"

OPERATIONS: Final[dict[str, Command]] = {
    "force_gc": Command(
        _O,
        "Has the node look for memory that it can free",
        "[--timeout <timeout>]",
        banner=lambda call: f"Will ask all processes on node {call.node} to schedule a full sweep GC",
    ),
    "reset_node_auth_attempt_metrics": Command(
        _C,
        "Counts attempts to log in anew",
        banner=lambda call: f"Reset auth attempt metrics on node {call.node} ...",
        tools=DIAGNOSTICS,
    ),
    "set_disk_free_limit": Command(
        _C,
        "Sets how much disk space must be free until the node restarts",
        "<disk_limit> | mem_relative <fraction>",
        (1, 2),
        banner=_banner_of_disk,
        request=_disk_limit,
    ),
    "set_log_level": Command(
        _C,
        "Sets the level of the log until the node restarts",
        "<log_level>",
        (1, 1),
        banner=lambda call: f'Setting log level to "{call.words[0]}" ...',
        request=_level,
        tools=CTL,
    ),
    "set_vm_memory_high_watermark": Command(
        _C,
        "Sets how much memory the node may use until it restarts",
        "<fraction> | absolute <value>",
        (1, 2),
        banner=_banner_of_watermark,
        request=_watermark,
    ),
}
