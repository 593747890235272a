"""A command is for the node that its options name, or for the one that this user runs on this machine."""

import json
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.io import control

DEFAULT_DATA_BASE: Final = "/var/lib/fluffle"
SETTINGS_FILE: Final = "cluster.json"
"""The settings in the directory of a cluster that `fluffle cluster` runs."""
IDENTITY_FILE: Final = "raft/node.json"
"""The identity file in a data directory (`node.clustering.identity`)."""
NODE_HOST: Final = "localhost"
"""The host in the names of the nodes that `fluffle cluster` runs."""


class NoNode(Exception):
    """No node can be asked; the text says why. Exit code 69."""


class Target(NamedTuple):
    """The node that a command is for."""

    name: str
    data_dir: str | None
    """The data directory; None: no node of that name runs here."""


def find(
    node: str | None, data: str | None, environ: Mapping[str, str], *, longnames: bool = False
) -> Target:
    """Return the node that a command line means.

    node, data: its name and its data directory, if they were given.

    Raises: NoNode when neither was given and none runs, or several of that name do.
    """
    running = _running(environ)
    node = node or environ.get("RABBITMQ_NODENAME") or None
    if data is not None:
        return _on(os.path.abspath(data), node, running, environ, longnames=longnames)
    if node is not None:
        matching = [each for each in running if node in (each[0], each[0].partition("@")[0])]
        if not matching:
            return Target(full_name(node, environ, longnames), None)
    elif not running:
        raise NoNode("no node of this user runs on this machine: name one by --data DIR, or start one")
    else:
        default = full_name("rabbit", environ, longnames)
        names = {name for name, _ in running}
        chosen = default if default in names else min(names, key=_natural)
        matching = [each for each in running if each[0] == chosen]
    if len(matching) > 1:
        places = "".join(f"\n  {data_dir}" for _, data_dir in matching)
        raise NoNode(
            f"several nodes called {matching[0][0]} run here: name one by --data DIR, one of{places}"
        )
    return Target(*matching[0])


def _on(
    path: str,
    node: str | None,
    running: list[tuple[str, str]],
    environ: Mapping[str, str],
    *,
    longnames: bool,
) -> Target:
    """Return the node of a data directory; or, in the directory of a cluster that `fluffle cluster` runs, the named
    node or the first that runs.
    """
    if os.path.isfile(os.path.join(path, SETTINGS_FILE)):
        for name in sorted(os.listdir(path), key=_natural):
            is_meant = node is None or node in (name, f"{name}@{NODE_HOST}")
            if is_meant and control.is_answering(os.path.join(path, name)):
                return Target(f"{name}@{NODE_HOST}", os.path.join(path, name))
    names = [name for name, place in running if os.path.realpath(place) == os.path.realpath(path)]
    name = names[0] if names else node or _stored_name(path) or os.path.basename(path)
    return Target(full_name(name, environ, longnames), path)


def _stored_name(path: str) -> str | None:
    """Return the name that the node of a data directory keeps over restarts; None if it cannot be read."""
    try:
        with open(os.path.join(path, IDENTITY_FILE), "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None  # a node that never ran here, or a file that only its owner may read
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def data_directory(target: Target, environ: Mapping[str, str]) -> str:
    """Return the data directory of a node that need not run."""
    base = environ.get("RABBITMQ_MNESIA_BASE") or DEFAULT_DATA_BASE
    return target.data_dir or environ.get("RABBITMQ_MNESIA_DIR") or f"{base}/{target.name}"


def full_name(name: str, environ: Mapping[str, str], longnames: bool = False) -> str:
    """Return `name@host`, with this machine's host as a node would take it."""
    if "@" in name:
        return name
    longnames = longnames or environ.get("RABBITMQ_USE_LONGNAME", "").lower() in ("1", "yes", "true")
    hostname = socket.gethostname()
    return f"{name}@{hostname if longnames else hostname.partition('.')[0]}"


def _running(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return this user's running nodes. If the registry of the login session is empty, that of nodes started outside
    of one (by cron, say) counts.
    """
    if control.has_entries(environ):
        return control.registered_nodes(environ)
    return control.registered_nodes(
        {name: value for name, value in environ.items() if name != "XDG_RUNTIME_DIR"}
    )


def _natural(name: str) -> list[Any]:
    """Return a sort key in which n2 comes before n10: texts and numbers alternate."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name))]
