"""This table has the commands that list objects and the state of clients. Source: management §3.3; RabbitMQ 3.10.8."""

from typing import Any, Final

from node.cli.ctl.command import Call, Command, commands
from node.cli.ctl.formats import Message, Names, Outcome, Report, Table
from node.cli.ctl.lists import (
    BINDINGS,
    CHANNELS,
    CONNECTIONS,
    CONSUMERS,
    EXCHANGES,
    FEATURE_FLAGS,
    chosen,
)
from node.operations import listings
from node.operations.operation import BOTH

# --- attempts to log in ---


def _attempts_listed(call: Call, result: Any) -> Outcome:
    rows = result["rows"]
    source = ("remote_address", "username") if call.line.is_set("by-source") else ()
    columns = (*source, "protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
    if call.line.texts.get("formatter", "table") not in ("table", "csv", "pretty_table"):
        return Report({"node": call.node, "result": "ok", "attempts": rows}, "")
    if not rows:
        return Report({}, f"Node {call.node} reported no authentication attempt stats")
    return Table(columns, rows)


def _unresponsive_listed(call: Call, result: Any) -> Outcome:
    return Table(("name",), result["rows"])


def _banner_of_flag(call: Call) -> str:
    name = call.words[0]
    return "Enabling all feature flags ..." if name == "all" else f'Enabling feature flag "{name}" ...'


def _hashes(call: Call, result: Any) -> Outcome:
    import hashlib

    known = ("blake2s", "blake2b", "sha3_512", "sha3_384", "sha3_256", "sha3_224", "sha512", "sha384")
    found = [
        name for name in (*known, "sha256", "sha224", "sha1", "md5") if name in hashlib.algorithms_available
    ]
    names = Names("sha" if name == "sha1" else name for name in found)
    return Report({"node": call.node, "result": "ok", "value": list(names)}, f"[{','.join(names)}]")


# --- connections ---


def _close_all(call: Call) -> dict[str, Any]:
    texts = call.line.texts
    return {
        "vhost": None if call.line.is_set("global") else call.vhost,
        "limit": int(texts.get("limit", "0")),
        "delay_ms": int(texts.get("per-connection-delay", "0")),
        "reason": call.words[0],
    }


def _banner_of_close_all(call: Call) -> str:
    limit = int(call.line.texts.get("limit", "0"))
    count = f"{limit}" if limit else "all"
    where = (
        f"to node {call.node} (across all vhosts)" if call.line.is_set("global") else f"in vhost {call.vhost}"
    )
    return f"Closing {count} connections {where}, reason: {call.words[0]}..."


def _closed(call: Call, result: Any) -> Outcome:
    return Message(f"Closed {result['closed']} connections")


LISTINGS: Final = {
    **commands(
        listings.LISTINGS,
        list_bindings=chosen(BINDINGS),
        list_channels=chosen(CHANNELS),
        list_connections=chosen(CONNECTIONS),
        list_consumers=chosen(CONSUMERS),
        list_exchanges=chosen(EXCHANGES),
        list_feature_flags=chosen(FEATURE_FLAGS),
        enable_feature_flag={"banner": _banner_of_flag},
        list_node_auth_attempt_stats={"present": _attempts_listed},
        list_unresponsive_queues={
            "arguments": (0, None),
            "options": frozenset({"local", "queue-timeout", "all"}),
            "present": _unresponsive_listed,
        },
        close_all_connections={
            "options": frozenset({"global", "limit", "per-connection-delay"}),
            "banner": _banner_of_close_all,
            "request": _close_all,
            "present": _closed,
        },
    ),
    "list_hashes": Command(
        "Monitoring, observability and health checks",
        "Lists supported hash functions",
        banner=lambda call: "Listing supported hash algorithms ...",
        present=_hashes,
        tools=BOTH,
        is_local=True,
    ),
}
