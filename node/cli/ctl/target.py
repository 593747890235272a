"""Which node a command is for: the one that was named, or the one that this user runs on this machine."""

import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.io import control

DEFAULT_DATA_BASE: Final = "/var/lib/fluffle"


class NoNode(Exception):
    """There is no node to talk to; the text says why. Exit code 69."""


class Target(NamedTuple):
    """A node."""

    name: str
    data_dir: str | None
    """None: no node of that name runs here."""


def find(
    node: str | None, data: str | None, environ: Mapping[str, str], *, longnames: bool = False
) -> Target:
    """The node that a command line means.

    node, data: its name and its data directory, if they were given.
    Raises: NoNode when neither was given and none runs.
    """
    running = _running(environ)
    if data is not None:
        path = os.path.abspath(data)
        names = [name for name, place in running.items() if os.path.realpath(place) == os.path.realpath(path)]
        return Target(
            names[0] if names else full_name(node or os.path.basename(path), environ, longnames), path
        )
    node = node or environ.get("RABBITMQ_NODENAME") or None
    if node is not None:
        matching = [name for name in running if name == node or name.partition("@")[0] == node]
        name = matching[0] if matching else full_name(node, environ, longnames)
        return Target(name, running.get(name))
    default = full_name("rabbit", environ, longnames)
    if not running:
        raise NoNode("no node of this user runs on this machine: name one by --data DIR, or start one")
    name = default if default in running else min(running, key=_natural)
    return Target(name, running[name])


def data_directory(target: Target, environ: Mapping[str, str]) -> str:
    """Where a node that may not run keeps its data."""
    base = environ.get("RABBITMQ_MNESIA_BASE") or DEFAULT_DATA_BASE
    return target.data_dir or environ.get("RABBITMQ_MNESIA_DIR") or f"{base}/{target.name}"


def full_name(name: str, environ: Mapping[str, str], longnames: bool = False) -> str:
    """`name@host`, with this machine's host as a node would take it."""
    if "@" in name:
        return name
    longnames = longnames or environ.get("RABBITMQ_USE_LONGNAME", "").lower() in ("1", "yes", "true")
    hostname = socket.gethostname()
    return f"{name}@{hostname if longnames else hostname.partition('.')[0]}"


def _running(environ: Mapping[str, str]) -> dict[str, str]:
    """This user's nodes; if the login session has none, those that were started outside of one, by cron for example."""
    without_session = {name: value for name, value in environ.items() if name != "XDG_RUNTIME_DIR"}
    return control.registered_nodes(environ) or control.registered_nodes(without_session)


def _natural(name: str) -> list[Any]:
    """An order in which n2 comes before n10: texts and numbers take turns."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name))]
