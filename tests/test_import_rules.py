"""Imports follow rules, and some folders do no I/O (ARCHITECTURE.md, "Who may import whom").

Imports go down the list of layers only. A folder that is pure is held to a list of modules that it may use, so
that a new way to do I/O needs no new rule here. Imports under `if TYPE_CHECKING` count like all others.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.source import calls, source

ROOT: Final = Path(__file__).resolve().parent.parent

ROOTS: Final = ("node", "cluster", "spark_ops")

LAYERS: Final = {
    "node.operations": (),
    "node.amqp": (),
    "node.amqp_client": ("node.amqp",),
    "node.scheduling": ("node.amqp",),
    "node.catalogue": ("node.amqp", "node.amqp_client"),
    "node.extension": ("node.amqp", "node.catalogue"),
    "node.routing": ("node.amqp", "node.catalogue", "node.extension"),
    "node.plugins": ("node.amqp", "node.catalogue", "node.extension", "node.routing"),
    "node.backends": ("node.plugins",),
    "node.websocket": ("node.plugins",),
    "node.mqtt": ("node.plugins", "node.websocket"),
    "node.federation": ("node.amqp", "node.amqp_client", "node.catalogue", "node.plugins"),
    "node.stomp": ("node.amqp", "node.plugins", "node.websocket"),
    "node.definitions": ("node.amqp", "node.catalogue"),
    "node.shovels": ("node.amqp", "node.amqp_client", "node.catalogue", "node.definitions", "node.plugins"),
    "node.queue": ("node.amqp", "node.scheduling", "node.catalogue"),
    "node.client": (
        "node.amqp",
        "node.scheduling",
        "node.catalogue",
        "node.extension",
        "node.routing",
        "node.queue",
    ),
    "node.broker": (
        "node.amqp",
        "node.scheduling",
        "node.catalogue",
        "node.routing",
        "node.queue",
        "node.client",
    ),
    "node.store": ("node.amqp", "node.scheduling", "node.catalogue", "node.queue"),
    "cluster.times": (),
    "node.config": ("cluster.times",),
    "node.log": ("node.amqp", "node.config"),
    "cluster.errors": (),
    "cluster.membership": ("node.amqp", "node.catalogue", "cluster.times"),
    "cluster.metadata": ("node.amqp", "node.catalogue", "node.store"),
    "cluster.remote": (
        "cluster.errors",
        "node.amqp",
        "node.scheduling",
        "node.catalogue",
        "node.queue",
        "node.client",
        "node.broker",
    ),
    "cluster.gm_ring": ("node.catalogue", "cluster.errors"),
    "cluster.mirror": (
        "node.amqp",
        "node.scheduling",
        "node.catalogue",
        "node.queue",
        "node.client",
        "node.broker",
        "cluster.errors",
        "cluster.remote",
        "cluster.gm_ring",
    ),
    "cluster.transport": ("node.log", "cluster.times"),
    "node.io": (
        "node.amqp",
        "node.amqp_client",
        "node.scheduling",
        "node.catalogue",
        "node.extension",
        "node.routing",
        "node.plugins",
        "node.backends",
        "node.mqtt",
        "node.stomp",
        "node.shovels",
        "node.federation",
        "node.queue",
        "node.client",
        "node.broker",
        "node.store",
        "node.config",
        "node.log",
    ),
    "node.statistics": ("node.amqp", "node.catalogue", "node.queue", "node.client", "node.broker"),
    "node.migrate": ("node.amqp", "node.catalogue", "node.definitions", "node.config"),
    "node.admin": (
        "node.amqp",
        "node.catalogue",
        "node.extension",
        "node.queue",
        "node.client",
        "node.broker",
        "node.definitions",
        "node.config",
        "node.log",
        "node.io",
    ),
    "node.app": (
        "node.amqp",
        "node.catalogue",
        "node.extension",
        "node.plugins",
        "node.queue",
        "node.client",
        "node.broker",
        "node.store",
        "node.definitions",
        "node.config",
        "node.io",
        "node.log",
        "node.admin",
    ),
    "node.management": (
        "node.amqp",
        "node.catalogue",
        "node.extension",
        "node.routing",
        "node.queue",
        "node.client",
        "node.broker",
        "node.statistics",
        "node.definitions",
        "node.config",
        "node.log",
        "node.io",
        "node.app",
        "node.admin",
    ),
    "node.telemetry": (
        "node.amqp",
        "node.catalogue",
        "node.extension",
        "node.routing",
        "node.queue",
        "node.client",
        "node.broker",
        "node.store",
        "node.statistics",
        "node.config",
        "node.log",
        "node.io",
        "node.app",
    ),
    "node.clustering": (
        "node.catalogue",
        "node.extension",
        "node.routing",
        "node.queue",
        "node.client",
        "node.broker",
        "node.store",
        "node.config",
        "node.log",
        "node.io",
        "node.admin",
        "node.app",
        "cluster.times",
        "cluster.membership",
        "cluster.metadata",
        "cluster.remote",
        "cluster.mirror",
        "cluster.transport",
    ),
    "node.process": (
        "node.catalogue",
        "node.client",
        "node.broker",
        "node.store",
        "node.statistics",
        "node.telemetry",
        "node.config",
        "node.log",
        "node.admin",
        "node.management",
        "node.io",
        "node.app",
        "node.clustering",
    ),
    "node.agent": (
        "node.operations",
        "node.amqp",
        "node.catalogue",
        "node.statistics",
        "node.definitions",
        "node.config",
        "node.log",
        "node.admin",
        "node.management",
        "node.io",
        "node.app",
        "node.clustering",
        "node.process",
    ),
    "node.cli": (
        "node.operations",
        "node.amqp",
        "node.catalogue",
        "node.definitions",
        "node.migrate",
        "node.store",
        "node.config",
        "node.log",
        "node.io",
        "node.app",
        "node.clustering",
        "node.process",
        "node.agent",
    ),
    "spark_ops.documents": (),
    "spark_ops.telemetry": ("spark_ops.documents",),
    "spark_ops.health": (),
    "spark_ops.planning": ("spark_ops.documents",),
    "spark_ops.applying": ("spark_ops.documents", "spark_ops.planning"),
    "spark_ops.reports": ("spark_ops.documents", "spark_ops.health", "spark_ops.planning"),
    "spark_ops.jobs": (
        "spark_ops.documents",
        "spark_ops.telemetry",
        "spark_ops.health",
        "spark_ops.planning",
    ),
    "spark_ops.cli": (
        "spark_ops.documents",
        "spark_ops.telemetry",
        "spark_ops.health",
        "spark_ops.planning",
        "spark_ops.applying",
        "spark_ops.reports",
        "spark_ops.jobs",
    ),
}
"""Each part of node/, cluster/ and spark_ops/ may import these besides itself, `node.version` and `node.override`.

A broker and spark_ops share files and HTTP, no code.

`node.__main__` belongs to the CLI.
"""

PURE: Final = (
    "node.operations",
    "node.amqp",
    "node.amqp_client",
    "node.scheduling",
    "node.catalogue",
    "node.extension",
    "node.routing",
    "node.plugins",
    "node.mqtt",
    "node.stomp",
    "node.shovels",
    "node.federation",
    "node.websocket",
    "node.queue",
    "node.client",
    "node.broker",
    "node.store",
    "node.statistics",
    "node.definitions",
    "node.migrate",
    "node.config",
    "cluster.errors",
    "cluster.times",
    "cluster.membership",
    "cluster.metadata",
    "cluster.remote",
    "cluster.gm_ring",
    "cluster.mirror",
    "spark_ops.documents",
    "spark_ops.health",
    "spark_ops.planning",
)

LIBRARIES: Final = {
    "cluster.membership": ("google",),
    "cluster.metadata": ("google", "pysyncobj", "io", "pickle", "sys", "types"),
    "cluster.remote": ("google",),
    "cluster.gm_ring": ("google",),
    "cluster.mirror": ("google",),
    "spark_ops.planning": ("numpy", "scipy"),
}
"""A pure part may use these beside that: protobuf; the core of Raft, which is imported without what it does not need,
and whose pickles are read by a reader of our own; arrays of a million queues."""

KNOTS: Final = (
    {
        "node.client.base_connection",
        "node.client.channel",
        "node.client.giving_back",
        "node.client.host",
        "node.client.observer",
        "node.client.publishing",
        "node.client.spreading",
        "node.client.throttle",
        "node.client.transaction",
        "node.client.vhost",
    },
    {
        "node.broker.handoff",
        "node.broker.broker",
        "node.broker.damages",
        "node.broker.following",
        "node.broker.internal_exchange",
        "node.broker.tracing",
        "node.broker.unsettled",
    },
    {
        "node.clustering.brokers",
        "node.clustering.cluster",
        "node.clustering.formation",
        "node.clustering.life",
        "node.clustering.links",
        "node.clustering.verdicts",
        "node.clustering.voting",
    },
    {
        "node.store.damage",
        "node.store.index_host",
        "node.store.loading",
        "node.store.queue_index",
        "node.store.releasing",
        "node.store.rereading",
        "node.store.scanning",
    },
    {
        "node.queue.consumer",
        "node.queue.host",
        "node.queue.live_queue",
        "node.queue.mirroring",
        "node.queue.paging",
        "node.queue.queue",
    },
    {
        "cluster.mirror.replica",
        "cluster.mirror.replica_facts",
        "cluster.mirror.known_queue",
        "cluster.mirror.metered_replica",
        "cluster.mirror.mirrors",
        "cluster.mirror.ring_watch",
    },
    {
        "node.process.agent",
        "node.process.answers",
        "node.process.management",
        "node.process.status",
        "node.process.telemetry",
    },
    {"node.management.auth", "node.management.call", "node.management.direct", "node.management.routes"},
    {"cluster.remote.front_end", "cluster.remote.outlet", "cluster.remote.proxy"},
    {"node.client.channel_methods", "node.client.connection", "node.client.handshake"},
    {"cluster.transport.peer_link", "cluster.transport.service", "cluster.transport.transport"},
    {"node.cli.cluster", "node.cli.supervisor"},
    {"node.io.server", "node.io.client_socket"},
    {"cluster.remote.home_link", "cluster.remote.remote_queue"},
    {"node.cli.ctl.commands", "node.cli.ctl.runtime_commands"},
)
"""Files that know each other in a circle, imports under `TYPE_CHECKING` included. This list may only shrink."""

GENERATED: Final = "_pb2.py"
"""The names of files that `protoc` made end so: nobody's rules hold for them."""

PURE_MODULES: Final = frozenset(
    {
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "errno",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "struct",
        "typing",
        "warnings",
        "zlib",
    }
)
"""A pure part may use these of the standard library: nothing that waits, tells the time or rolls dice."""

FORBIDDEN_CALLS: Final = frozenset({"open", "print", "input", "exec", "eval", "compile", "__import__"})
"""Built-ins with which I/O needs no import."""


FORBIDDEN_METHODS: Final = frozenset({"datetime.now", "datetime.utcnow", "datetime.today", "date.today"})
"""These methods of the module `datetime` tell the time. Its other names are fine."""


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _part(module: str) -> str | None:
    """The layer that a module belongs to; None for `node` and `cluster` themselves, and for what all layers share."""
    if module in ("node.__main__", "spark_ops.__main__"):
        return module.replace("__main__", "cli")
    name = ".".join(module.split(".")[:2])
    return None if name in ("node", "node.override", "node.version", "cluster", "spark_ops") else name


@functools.cache
def _imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and dotted name of each import; `from node import log` is an import of node.log."""
    found: list[tuple[int, str]] = []
    for line, module, names in source(path).imports:
        assert not module.startswith("."), f"{path}:{line}: imports are absolute"
        if not module:
            found += ((line, name) for name in names)
        else:
            found += ((line, f"node.{name}" if module == "node" else module) for name in names)
    return tuple(found)


FILES: Final = sorted(
    path for folder in ROOTS for path in (ROOT / folder).rglob("*.py") if not path.name.endswith(GENERATED)
)


def test_layers_have_no_cycle() -> None:
    """Each layer imports only what the table names before it."""
    known: set[str] = set()
    for part, allowed in LAYERS.items():
        assert known.issuperset(allowed), part
        known.add(part)


def test_imports_go_down() -> None:
    """No module imports from a layer above it or beside it."""
    problems = []
    for path in FILES:
        part = _part(_module(path))
        assert part is None or part in LAYERS, f"{path} belongs to no layer: add it to the table"
        allowed = (None, part, *LAYERS[part]) if part else (None,)
        for line, name in _imports(path):
            top = name.split(".")[0]
            if top in ("tests", "bench") or (top in ROOTS and _part(name) not in allowed):
                problems.append(f"{path}:{line}: {part or 'this'} may not import {name}")
    assert problems == []


def _circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """The groups of modules, two at least, of which each reaches each other one."""
    reached = {module: _reached(graph, module) for module in graph}
    left = set(graph)
    while left:
        module = left.pop()
        circle = {other for other in reached[module] if module in reached[other]}
        left -= circle
        if len(circle) > 1:
            yield circle


def _reached(graph: dict[str, set[str]], module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for other in graph[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def test_no_new_circles() -> None:
    """Files know each other in circles only where `KNOTS` says so; a file that has left its circle leaves the list."""
    modules = {_module(path): path for path in FILES}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for _, origin, names in source(path).imports:
            if origin:
                known = (origin, *(f"{origin}.{name}" for name in names))
                graph[module].update(name for name in known if name in modules and name != module)
    circles = sorted(sorted(circle) for circle in _circles(graph))
    assert circles == sorted(sorted(knot) for knot in KNOTS)


def test_pure_parts_do_no_io() -> None:
    """The protocol, the broker's rules and the configuration get time, randomness and bytes as arguments."""
    problems = []
    for path in [path for path in FILES if _part(_module(path)) in PURE]:
        for line, name in _imports(path):
            top = name.split(".")[0]
            if top not in (*ROOTS, *PURE_MODULES, *LIBRARIES.get(_part(_module(path)) or "", ())):
                problems.append(f"{path}:{line}: import of {name}")
        for line, name in calls(path):
            if name in FORBIDDEN_CALLS or name in FORBIDDEN_METHODS:
                problems.append(f"{path}:{line}: {name}()")
    assert problems == []


def test_the_benchmark_knows_nothing_of_the_broker() -> None:
    """The benchmark judges from outside, so an error of the codec cannot hide."""
    files = sorted((ROOT / "bench").glob("*.py"))
    assert files
    imports = {name.split(".")[0] for path in files for _, name in _imports(path)}
    assert imports.isdisjoint({"node", "cluster", "spark_ops", "tests"})


def test_only_jobs_know_spark() -> None:
    """`show` and `apply` start without a JVM; a broker starts without any of these."""
    for library, parts in {
        "pyspark": {"spark_ops.jobs"},
        "pyarrow": {"spark_ops.jobs", "spark_ops.telemetry", "spark_ops.reports"},
        "numpy": {"spark_ops.planning", "spark_ops.jobs"},
        "scipy": {"spark_ops.planning"},
    }.items():
        using = {
            _part(_module(path))
            for path in FILES
            for _, name in _imports(path)
            if name.split(".")[0] == library
        }
        assert using <= parts, library
