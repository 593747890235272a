"""Commands that limit memory and disk, and `set_log_level`, make their requests here. Source: management §3.2."""

import re
from typing import Any, Final

from node.cli.ctl.command import Call, NotHealthy, Refused
from node.operations.operation import EX_DATAERR

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
    """Return whether the form with a keyword before the value was typed. Raises: Refused."""
    has_keyword = call.words[0] == keyword
    if has_keyword and len(call.words) < 2:
        raise Refused("not enough arguments.")
    if not has_keyword and len(call.words) > 1:
        raise Refused("too many arguments.")
    return has_keyword


def watermark(call: Call) -> dict[str, Any]:
    """Return the request of `set_vm_memory_high_watermark`. Raises: Refused."""
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


def banner_of_watermark(call: Call) -> str:
    """Return the banner of `set_vm_memory_high_watermark`."""
    value = f"{call.words[1]} bytes" if len(call.words) > 1 else call.words[0]
    return f"Setting memory threshold on {call.node} to {value} ..."


def disk_limit(call: Call) -> dict[str, Any]:
    """Return the request of `set_disk_free_limit`. Raises: Refused."""
    if _of_keyword(call, "mem_relative"):
        return {"relative": _fraction(call.words[1])}
    return {"absolute_bytes": _bytes(call.words[0])}


def banner_of_disk(call: Call) -> str:
    """Return the banner of `set_disk_free_limit`."""
    value = f"{call.words[1]} times the total RAM" if len(call.words) > 1 else f"{call.words[0]} bytes"
    return f"Setting disk free limit on {call.node} to {value} ..."


# --- log ---

_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")


def level(call: Call) -> dict[str, Any]:
    """Return the request of `set_log_level`. Raises: NotHealthy."""
    if call.words[0] not in _LEVELS:
        text = f"level {call.words[0]} is not supported. Try one of {', '.join(_LEVELS)}"
        raise NotHealthy(text)
    return {"level": call.words[0]}
