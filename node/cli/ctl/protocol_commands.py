"""The commands that list the clients of STOMP and MQTT. Source: RabbitMQ 3.10.8, the commands of its plug-ins.

RabbitMQ's columns about its own processes are not there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from node.cli.ctl.command import Call, commands
from node.cli.ctl.formats import Address, Arguments, Atom, Outcome
from node.cli.ctl.lists import Listing, columns_of, listed
from node.operations import protocol_clients

_TLS: Final = ("ssl", "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash")
_ENDS: Final = ("host", "port", "peer_host", "peer_port", "protocol", "channels", "channel_max", "frame_max")

STOMP_COLUMNS: Final = (
    "conn_name",
    "connection",
    "connection_state",
    "session_id",
    "channel",
    "version",
    "implicit_connect",
    "auth_login",
    "auth_mechanism",
    "peer_addr",
    *_ENDS,
    "client_properties",
    *_TLS,
)
MQTT_COLUMNS: Final = (
    *_ENDS,
    "client_properties",
    *_TLS,
    "conn_name",
    "connection_state",
    "connection",
    "client_id",
    "clean_sess",
    "user",
    "vhost",
)
"""All columns, in the order of `--verbose`."""

_SHOWN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "connection": Atom,
    "channel": Atom,
    "connection_state": Atom,
    "auth_mechanism": Atom,
    "host": Address,
    "peer_host": Address,
    "peer_addr": Address,
    "client_properties": Arguments,
}
STOMP_CONNECTIONS: Final = Listing(frozenset(STOMP_COLUMNS), ("session_id", "conn_name"), _SHOWN)
MQTT_CONNECTIONS: Final = Listing(frozenset(MQTT_COLUMNS), ("client_id", "conn_name"), _SHOWN)


def _chosen(listing: Listing, all_columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a command that lists connections of a protocol.   all_columns: those of `--verbose`."""

    def wanted(call: Call) -> Listing:
        return listing._replace(default=all_columns) if call.line.is_set("verbose") else listing

    def request(call: Call) -> dict[str, Any]:
        return {"columns": list(columns_of(call, wanted(call)))}

    def present(call: Call, result: Any) -> Outcome:
        return listed(wanted(call))(call, result)

    return {
        "request": request,
        "present": present,
        "options": frozenset({"verbose"}),
        "columns": listing.columns,
    }


PROTOCOL_CLIENTS: Final = commands(
    protocol_clients.PROTOCOL_CLIENTS,
    list_stomp_connections=_chosen(STOMP_CONNECTIONS, STOMP_COLUMNS),
    list_mqtt_connections=_chosen(MQTT_CONNECTIONS, MQTT_COLUMNS),
)
