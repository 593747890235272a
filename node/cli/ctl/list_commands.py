"""The commands that list what there is and what clients are doing. Source: management §3.3; RabbitMQ 3.10.8."""

from typing import Any, Final

from node.cli.ctl.command import Call, Command
from node.cli.ctl.formats import Names, Outcome, Report, Table
from node.cli.ctl.lists import (
    BINDINGS,
    CHANNELS,
    CONNECTIONS,
    CONSUMERS,
    EXCHANGES,
    FEATURE_FLAGS,
    Listing,
    list_request,
    listed,
)
from node.operations.operation import BOTH

_M: Final = "Monitoring, observability and health checks"


def _list(listing: Listing, help_: str, banner: Any, *, vhost: bool = True, **more: Any) -> Command:
    where = "[--vhost <vhost>] " if vhost else ""
    return Command(
        more.pop("section", _M),
        help_,
        f"{where}[--no-table-headers] [<column> ...] [--timeout <timeout>]",
        (0, None),
        banner=banner,
        request=list_request(listing),
        present=listed(listing),
        tools=BOTH,
        columns=listing.columns,
        **more,
    )


# --- attempts to log in ---


def _attempts(call: Call) -> dict[str, Any]:
    return {"by_source": call.line.is_set("by-source")}


def _attempts_listed(call: Call, result: Any) -> Outcome:
    rows = result["rows"]
    source = ("remote_address", "username") if call.line.is_set("by-source") else ()
    columns = (*source, "protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
    if call.line.texts.get("formatter", "table") not in ("table", "csv", "pretty_table"):
        return Report({"node": call.node, "result": "ok", "attempts": rows}, "")
    if not rows:
        return Report({}, f"Node {call.node} reported no authentication attempt stats")
    return Table(columns, rows)


def _unresponsive(call: Call) -> dict[str, Any]:
    return {"vhost": call.vhost, "queue_timeout_ms": int(call.line.texts.get("queue-timeout", "15000"))}


def _unresponsive_listed(call: Call, result: Any) -> Outcome:
    return Table(("name",), result["rows"])


def _flags_changed(call: Call) -> dict[str, Any]:
    return {"name": call.words[0]}


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


LISTINGS: Final[dict[str, Command]] = {
    "list_bindings": _list(
        BINDINGS,
        "Lists bindings in a virtual host",
        lambda call: f"Listing bindings for vhost {call.vhost}...",
    ),
    "list_channels": _list(
        CHANNELS, "Lists channels of all clients", lambda call: "Listing channels ...", vhost=False
    ),
    "list_connections": _list(
        CONNECTIONS, "Lists clients' connections", lambda call: "Listing connections ...", vhost=False
    ),
    "list_consumers": _list(
        CONSUMERS,
        "Lists consumers in a virtual host",
        lambda call: f"Listing consumers in vhost {call.vhost} ...",
    ),
    "list_exchanges": _list(
        EXCHANGES,
        "Lists exchanges in a virtual host",
        lambda call: f"Listing exchanges for vhost {call.vhost} ...",
    ),
    "list_feature_flags": _list(
        FEATURE_FLAGS,
        "Lists feature flags: all that this version knows are on",
        lambda call: "Listing feature flags ...",
        vhost=False,
        section="Feature flags",
    ),
    "enable_feature_flag": Command(
        "Feature flags",
        "Sees to it that a feature flag is on",
        "<all | feature_flag>",
        (1, 1),
        banner=_banner_of_flag,
        request=_flags_changed,
    ),
    "list_hashes": Command(
        _M,
        "Lists hash functions that there are",
        banner=lambda call: "Listing supported hash algorithms ...",
        present=_hashes,
        tools=BOTH,
        is_local=True,
    ),
    "list_node_auth_attempt_stats": Command(
        _M,
        "Lists how often clients have tried to log in",
        "[--by-source]",
        options=frozenset({"by-source"}),
        banner=lambda call: f'Listing authentication\n attempts for node "{call.node}" ...',
        request=_attempts,
        present=_attempts_listed,
        tools=BOTH,
    ),
    "list_unresponsive_queues": Command(
        _M,
        "Lists queues whose node does not answer in time",
        "[--local] [--queue-timeout <milliseconds>] [<column> ...] [--timeout <timeout>]",
        (0, None),
        frozenset({"local", "queue-timeout", "all"}),
        banner=lambda call: f"Listing unresponsive queues for vhost {call.vhost} ...",
        request=_unresponsive,
        present=_unresponsive_listed,
        tools=BOTH,
    ),
}
