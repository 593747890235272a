"""The commands with which an operator lets clients go to the other broker, for HAProxy and for the HTTP API.

Both brokers stand in one backend of HAProxy. New connections go to the other one at once, connections that are there
stay until they are closed: so consumers can be moved before publishers though all of them use the same address.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from node.migrate.clients import Client
from node.migrate.cut_over import Step
from node.migrate.ends import End
from node.migrate.move import Move
from node.migrate.percent import encoded

BACKEND: Final = "brokers"
SOCKET: Final = "/run/haproxy/admin.sock"
CONNECTIONS_SHOWN: Final = 50
"""The most connections that are listed one by one."""
REASON: Final = "moving to another broker"


@dataclass(frozen=True, slots=True)
class Balancer:
    """The HAProxy before the brokers.   socket: of its administration.   backend: with the servers of both."""

    backend: str = BACKEND
    socket: str = SOCKET


def servers(end: End) -> list[str]:
    """Return the names of an end's servers in HAProxy."""
    prefix = "fluffle" if end.product == "Fluffle" else "rabbitmq"
    return [f"{prefix}{number}" for number in range(1, len(end.amqp) + 1)]


def haproxy_lines(move: Move, balancer: Balancer) -> list[str]:
    """Return the lines of haproxy.cfg with both brokers: the target's servers are disabled at first."""
    lines = [f"backend {balancer.backend}", "    mode tcp", "    balance leastconn"]
    for end, is_off in ((move.source_end, False), (move.target_end, True)):
        for name, address in zip(servers(end), end.amqp, strict=True):
            place = address.rpartition("://")[2]
            lines.append(f"    server {name} {place} check{' disabled' if is_off else ''}")
    return lines


def switch_lines(move: Move, balancer: Balancer) -> list[str]:
    """Return HAProxy's commands that send new connections to the target; those at the source stay."""
    states = [(name, "ready") for name in servers(move.target_end)]
    states += [(name, "drain") for name in servers(move.source_end)]
    return [f"set server {balancer.backend}/{name} state {state}" for name, state in states]


def leaving(clients: Iterable[Client], step: Step, users: Sequence[str] = ()) -> list[Client]:
    """Return the clients that a step moves: those that consume, then all others.

    users: `USER@VHOST`, a group's; none for all.
    """
    return [
        each
        for each in clients
        if (step != "consumers" or each.consumes) and (not users or f"{each.user}@{each.vhost}" in users)
    ]


def close_path(client: Client) -> str:
    """Return the path below /api whose DELETE closes a connection."""
    return f"/connections/{encoded(client.name)}"


def procedure(move: Move, step: Step, balancer: Balancer, users: Sequence[str] = ()) -> list[str]:
    """Return the commands of a step, as lines of a shell with comments."""
    source, target = move.source.product, move.target.product
    gone = leaving(move.clients(), step, users)
    if step == "finish":
        return _removal(move, balancer)
    lines = []
    if step == "consumers":
        lines += [
            f"# 1. Both brokers in haproxy.cfg, once, then `systemctl reload haproxy`; {target}'s are disabled:"
        ]
        lines += [f"#      {line}" for line in haproxy_lines(move, balancer)]
        lines += [
            f"# 2. New connections go to {target}, those that are there stay. Without HAProxy: the name in DNS, or the",
            "#    addresses in the clients' configuration.",
            *_socat(switch_lines(move, balancer), balancer),
            f"# 3. Consumers leave {source}; they connect again, to {target}:",
        ]
    else:
        lines += [
            f"# Publishers leave {source}, and whatever else is connected; they connect again, to {target}:"
        ]
    lines += _closing(move, gone, step)
    both = [each for each in gone if each.role == "both"]
    if step == "consumers" and both:
        lines.append(
            f"# {len(both):,} of these connections publish, too: what they publish then is at {target} first."
        )
    return lines


def _closing(move: Move, gone: Sequence[Client], step: Step) -> list[str]:
    if not gone:
        return [f"# none is connected to {move.source.product}"]
    if len(gone) > CONNECTIONS_SHOWN:
        return [f"# {len(gone):,} connections", f"fluffle migrate cut-over {step} --close"]
    url = move.source_end.url
    lines = [
        f"# (`-n`: the password is in ~/.netrc, for {_host(url)}; or all: "
        f"`fluffle migrate cut-over {step} --close`)"
    ]
    for client in gone:
        what = f"{client.user}@{client.vhost}, {client.role}, {client.label or client.product}"
        lines.append(
            f"curl -fsS -n -X DELETE -H 'X-Reason: {REASON}' '{url}/api{close_path(client)}'  # "
            + "".join(each if each.isprintable() else "?" for each in what)
        )
    return lines


def _host(url: str) -> str:
    """Return the host of a URL without credentials."""
    place = url.partition("://")[2].partition("/")[0]
    return place.partition("]")[0].removeprefix("[") if place.startswith("[") else place.partition(":")[0]


def _removal(move: Move, balancer: Balancer) -> list[str]:
    return [
        f"# {move.source.product}'s servers leave haproxy.cfg; until the next reload:",
        *_socat(
            [f"set server {balancer.backend}/{name} state maint" for name in servers(move.source_end)],
            balancer,
        ),
    ]


def _socat(commands: Sequence[str], balancer: Balancer) -> list[str]:
    return [f'echo "{command}" | socat stdio {balancer.socket}' for command in commands]
