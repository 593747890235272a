"""A node that starts checks first whether its ports are in use by another process."""

import errno
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from node.config.config import Config

HINT: Final = (
    "give other addresses with --listen HOST:PORT (make run LISTEN=HOST:PORT) or in the configuration"
)
"""The hint for a user who starts one node."""


def why_not(host: str, port: int) -> str:
    """Return why no process can listen on an address; empty if one can.   host: empty: every interface."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in found:
            socket.create_server(address, family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ""


def busy_ports(config: "Config") -> list[str]:
    """Return a line for each address of the configuration that is in use already."""
    management, prometheus = config.management, config.prometheus
    wanted = [(place, "clients") for place in (*config.tcp_listeners, *config.tls_listeners)]
    for listener, use in ((management, "HTTP clients"), (prometheus, "Prometheus")):
        if listener.is_on and listener.is_configured:
            wanted += [(place, use) for place in (listener.listen, listener.tls_listen) if place is not None]
    if config.cluster.listen is not None:
        wanted.append((config.cluster.listen, "other nodes"))
    in_use = os.strerror(errno.EADDRINUSE)
    return [
        f"cannot start: {use} cannot be accepted on {place}: {in_use}; {HINT}"
        for place, use in wanted
        if place.port and why_not(*place) == in_use
    ]
