"""Which node a command is for: the one that was named, or the one that this user runs on this machine."""

import json
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.io import control

DEFAULT_DATA_BASE: Final = "/var/lib/fluffle"
SETTINGS_FILE: Final = "cluster.json"
"""In the directory of a cluster that `fluffle cluster` runs."""
IDENTITY_FILE: Final = "raft/node.json"
"""In a data directory: `node.clustering.identity`."""
NODE_HOST: Final = "localhost"
"""In the names of its nodes."""


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
    """The node whose data directory this is; or, of the cluster that `fluffle cluster` runs here, the one that is
    named or the first that runs.
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
    """The name of the node whose data directory this is, as it keeps it over restarts."""
    try:
        with open(os.path.join(path, IDENTITY_FILE), "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None  # a node that never ran here, or a file that only its owner may read
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


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


def _running(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """This user's nodes; if the login session never had one, those that were started outside of one, by cron say."""
    if control.has_entries(environ):
        return control.registered_nodes(environ)
    return control.registered_nodes(
        {name: value for name, value in environ.items() if name != "XDG_RUNTIME_DIR"}
    )


def _natural(name: str) -> list[Any]:
    """An order in which n2 comes before n10: texts and numbers take turns."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name))]
