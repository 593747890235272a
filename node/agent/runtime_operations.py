"""The command line uses these operations on the process and its environment: memory, log, configuration, TLS, health.

Source: management §1.11, §3.2; RabbitMQ 3.10.8's output.
"""

import asyncio
import dataclasses
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from node.agent import errors
from node.agent.admin_operations import AdminOperations
from node.agent.queues import records
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import QueueRecord
from node.config.config import Config, LogLevel
from node.config.plugins import FOR_ALL_NODES, with_needed
from node.io.control import EX_USAGE, ControlError
from node.log import log
from node.process import status

LINES_MAX: Final = 10_000
"""The most lines of a log that one answer has."""
STREAM_BYTES: Final = 256 * 1024
"""The most bytes of a log that are read at a time."""
CRITICAL_MAX: Final = 1000
"""The most queues that a check names."""
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
AWAIT_POLL_S: Final = 0.5
HIDDEN: Final = "********"
"""The text that stands in the place of a secret."""


class RuntimeOperations(AdminOperations):
    """The operations on the process of one agent."""

    # --- memory and disk ---

    async def memory_breakdown(self) -> dict[str, Any]:
        """Return the node's use of memory by purpose, in bytes."""
        from node.management.node_facts import memory_breakdown

        found = memory_breakdown(self._running())
        return {"memory": {name: size for name, size in found.items() if isinstance(size, int)}}

    async def set_vm_memory_high_watermark(self, relative: object, absolute_bytes: int | None) -> None:
        """Set the memory limit until the node restarts."""
        node = self._running()
        options = dataclasses.replace(
            node.config.memory,
            watermark_relative=_fraction(relative, node.config.memory.watermark_relative),
            watermark_absolute_bytes=absolute_bytes,
        )
        node.guard.memory.set_limit(options)

    async def set_disk_free_limit(self, relative: object, absolute_bytes: int | None) -> None:
        """Set the limit of free disk space until the node restarts."""
        node = self._running()
        options = dataclasses.replace(
            node.config.disk,
            free_limit_bytes=absolute_bytes or 0,
            free_limit_relative=_fraction(relative, 0.0) if absolute_bytes is None else None,
        )
        node.guard.disk.set_limit(options)

    async def force_gc(self) -> None:
        """Collect the young generations only: a full collection would hold clients for seconds."""
        self._running()
        gc.collect(1)

    async def reset_node_auth_attempt_metrics(self) -> None:
        """Reset the counts of logins."""
        self._running().broker.counters.auth_attempts.clear()

    # --- log ---

    async def set_log_level(self, level: str) -> None:
        """Set the level of the log until the node restarts."""
        self._running()
        name = level.upper()
        if name not in LogLevel.__members__:
            raise errors.unavailable(f"there is no level {name}")
        log.set_level(LogLevel[name])

    def _log_file(self) -> str:
        """Return the path of the log file. Raises: ControlError if the log goes to none."""
        file = self._agent.config.log.file
        if file is None:
            raise errors.unavailable("the node does not log to a file: look where its standard output goes")
        return file.path

    async def log_tail(self, number: int) -> dict[str, Any]:
        """Return the last lines of the log, at most `LINES_MAX`."""
        return {"lines": await asyncio.to_thread(last_lines, self._log_file(), min(number, LINES_MAX))}

    async def log_stream(self, after: object) -> dict[str, Any]:
        """Return the lines since the last call.   after: the position that it returned; null: from now on."""
        path = self._log_file()
        lines, position = await asyncio.to_thread(_lines_after, path, after if type(after) is int else None)
        return {"lines": lines, "after": position}

    # --- configuration ---

    async def environment(self) -> dict[str, Any]:
        """Return the configuration, without secrets."""
        return {"environment": {"fluffle": shown_config(self._agent.config)}}

    async def os_env(self) -> dict[str, Any]:
        """Return the environment variables that the node reads, without secrets."""
        return {"variables": shown_variables(self._agent.environ)}

    async def command_line_arguments(self) -> dict[str, Any]:
        """Return the command line with which the process was started."""
        return {"arguments": list(sys.orig_argv)}

    async def plugins(self) -> dict[str, Any]:
        """Return the plug-ins whose work the process does, even without a broker, as the HTTP listeners do."""
        config = self._agent.config
        on = {"rabbitmq_management": config.management.is_on, "rabbitmq_prometheus": config.prometheus.is_on}
        others = [
            name for name in config.enabled_plugins or () if name not in on and name not in FOR_ALL_NODES
        ]
        running = with_needed({*others, *(name for name, is_on in on.items() if is_on)})
        node = self._agent.node
        if node is not None:
            running += [name for name, found in node.broker.exchange_types.plugins if found is not None]
        return {"file": config.enabled_plugins_file, "running": sorted(running)}

    async def discover_peers(self) -> dict[str, Any]:
        """Return the names of the nodes in the configuration's list for cluster formation."""
        return {"peers": [each.name for each in self._agent.config.cluster.formation_nodes]}

    # --- TLS, names ---

    async def tls(self) -> dict[str, Any]:
        """Return the TLS versions and cipher suites of this machine's OpenSSL."""
        import ssl

        self._running()
        versions = [("tlsv1.3", ssl.HAS_TLSv1_3), ("tlsv1.2", ssl.HAS_TLSv1_2)]
        suites = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()
        return {
            "versions": [name for name, has in versions if has],
            "suites": [str(each["name"]) for each in suites],
        }

    async def resolve_hostname(self, family: str, hostname: str) -> dict[str, Any]:
        """Return the addresses of a host name; none if it cannot be resolved."""
        import socket

        kind = socket.AF_INET6 if family == "ipv6" else socket.AF_INET
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(hostname, None, family=kind)
        except OSError:
            found = []
        return {"addresses": list(dict.fromkeys(str(each[4][0]) for each in found))}

    async def certificates(self) -> dict[str, Any]:
        """Return the certificates of the listeners."""
        return {"certificates": await asyncio.to_thread(certificates, self._agent.config)}

    async def check_certificate_expiration(self, within_days: int) -> dict[str, Any]:
        """Return the certificates that expire within these days, and those that cannot be read."""
        from datetime import UTC, datetime, timedelta

        limit = (datetime.now(UTC) + timedelta(days=min(within_days, 365_000))).strftime(TIME_FORMAT)
        found = await asyncio.to_thread(certificates, self._agent.config)
        return {"expiring": [each for each in found if each["certfile_expires_on"] <= limit]}

    # --- queues ---

    async def check_if_node_is_mirror_sync_critical(self) -> dict[str, Any]:
        """Return the queues that `mirror_critical` finds."""
        what = "classic mirrored queues without online synchronised mirrors"
        found = mirror_critical(self._catalogue, self._agent.config.node_name)
        return self._critical(found, what)

    async def check_if_node_is_quorum_critical(self) -> dict[str, Any]:
        """Return the queues that `quorum_critical` finds."""
        what = "queues with minimum online quorum"
        found = quorum_critical(self._catalogue, self._agent.config.node_name)
        return self._critical(found, what)

    def _critical(self, queues: list[QueueRecord], what: str) -> dict[str, Any]:
        rows = [
            {
                "name": each.name,
                "readable_name": f"queue '{each.name}' in vhost '{each.vhost}'",
                "type": "rabbit_classic_queue" if each.type == "classic" else "rabbit_quorum_queue",
                "virtual_host": each.vhost,
            }
            for each in queues[:CRITICAL_MAX]
        ]
        return {"is_single": self._is_single, "queues": rows, "what": what, "bad": what}

    @property
    def _is_single(self) -> bool:
        found = status.cluster_status(self._agent)
        return len(found["disk_nodes"]) + len(found["ram_nodes"]) == 1

    async def await_online_synchronized_mirror(self) -> dict[str, Any]:
        """Wait until `mirror_critical` finds nothing."""
        return await self._await(mirror_critical)

    async def await_online_quorum_plus_one(self) -> dict[str, Any]:
        """Wait until `quorum_critical` finds nothing."""
        return await self._await(quorum_critical)

    async def _await(self, look: Callable[[Catalogue, str], list[QueueRecord]]) -> dict[str, Any]:
        self._running()
        if self._is_single:
            return {"is_single": True}
        while look(self._catalogue, self._agent.config.node_name):
            await asyncio.sleep(AWAIT_POLL_S)  # the operation as a whole has a time-out
        return {}

    async def quorum_status(self, vhost: str, queue: str) -> dict[str, Any]:
        """Return the copies of a quorum queue."""
        catalogue = self._catalogue
        record = None if catalogue.vhost(vhost) is None else catalogue.queue(vhost, queue)
        if record is None:
            raise errors.unavailable(errors.QUEUE_NOT_FOUND)
        if record.type != "quorum":
            raise errors.unavailable("classic_queue_not_supported")
        view = record.view
        if view is None:
            return {"rows": [_member_row(record.home, "leader", 0, 0)]}
        ring = {member.id for member in view.ring}
        rows = []
        for member in view.members:
            state = "leader" if member.id == view.master else "follower" if member.id in ring else "noproc"
            rows.append(_member_row(member.node, state, view.version, record.mastership))
        return {"rows": rows}


def _member_row(node: str, state: str, index: int, term: int) -> dict[str, Any]:
    return {
        "Node Name": node,
        "Raft State": state,
        "Log Index": index,
        "Commit Index": index,
        "Snapshot Index": index,
        "Term": term,
    }


# --- what would be lost ---


def mirror_critical(catalogue: Catalogue, own: str) -> list[QueueRecord]:
    """Return the mirrored queues whose master is here and that have no synchronised mirror elsewhere."""
    return [
        record
        for record in records(catalogue, None)
        if record.type == "classic"
        and record.view is not None
        and record.view.master_node == own
        and not any(m.node != own and m.id in record.view.synced for m in record.view.ring)
    ]


def quorum_critical(catalogue: Catalogue, own: str) -> list[QueueRecord]:
    """Return the quorum queues with a copy here that would lose their majority without it."""
    found = []
    for record in records(catalogue, None):
        view = record.view
        if record.type == "quorum" and view is not None:
            here = any(member.node == own for member in view.ring)
            if here and len(view.ring) <= len(view.members) // 2 + 1:
                found.append(record)
    return found


# --- certificates ---


def certificates(config: Config) -> list[dict[str, Any]]:
    """Return the certificates of the TLS listeners; one that cannot be read has an empty expiry."""
    listeners = [("amqp/ssl", address, config.tls) for address in config.tls_listeners]
    if config.management.tls_listen is not None:
        listeners.append(("https", config.management.tls_listen, config.management.tls))
    if config.prometheus.tls_listen is not None:
        listeners.append(("https/prometheus", config.prometheus.tls_listen, config.prometheus.tls))
    return [
        {
            "node": config.node_name,
            "protocol": protocol,
            "interface": address.host or "[::]",
            "port": address.port,
            "certfile": tls.certificate_file,
            "cacertfile": tls.ca_file or "",
            "certfile_expires_on": _end_of(tls.certificate_file),
            "cacertfile_expires_on": "" if tls.ca_file is None else _end_of(tls.ca_file),
        }
        for protocol, address, tls in listeners
    ]


def _end_of(path: str) -> str:
    from node.management.certificates import expiries

    try:
        with open(path, encoding="ascii", errors="replace") as file:
            ends = expiries(file.read(1 << 20))
    except (OSError, ValueError):
        return ""
    return min(ends).strftime(TIME_FORMAT) if ends else ""


# --- arguments ---


def _fraction(value: object, default: float) -> float:
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ControlError(EX_USAGE, "the argument 'relative' is not a fraction")
    return float(value)


# --- log ---


def last_lines(path: str, count: int) -> list[str]:
    """Return the last lines of a text file. Raises: ControlError."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            # Enough for long lines; more of a log of gigabytes is not read.
            file.seek(max(0, size - count * 1000 - STREAM_BYTES))
            lines = deque(file.read().decode("utf-8", "replace").splitlines(), maxlen=count)
    except OSError as error:
        raise errors.unavailable(f"{path} cannot be read: {error.strerror}") from None
    return list(lines)


def _lines_after(path: str, position: int | None) -> tuple[list[str], int]:
    """Return the lines from a position on, and the position after them; without a position none, and the end of the
    file.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if position is None:
                return [], size
            start = position if position <= size else 0  # a shorter file has replaced the former one
            file.seek(start)
            data = file.read(STREAM_BYTES)
    except OSError as error:
        raise errors.unavailable(f"{path} cannot be read: {error.strerror}") from None
    whole = data[: data.rfind(b"\n") + 1]
    if not whole and len(data) == STREAM_BYTES:
        whole = data  # one line that is longer than a read: it comes in pieces
    return whole.decode("utf-8", "replace").splitlines(), start + len(whole)


# --- configuration ---


def shown_config(value: Any) -> Any:
    """Convert a configuration for JSON. A field that its dataclass leaves out of `repr` is a secret, and is hidden."""
    if dataclasses.is_dataclass(value):
        return {
            each.name: shown_config(getattr(value, each.name)) if each.repr else HIDDEN
            for each in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(name): shown_config(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [shown_config(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


_SECRET_WORDS: Final = ("PASS", "COOKIE", "SECRET", "TOKEN", "KEY")


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names begin with RABBITMQ_ or FLUFFLE_, without secrets."""
    return {
        name: HIDDEN if any(word in name for word in _SECRET_WORDS) else value
        for name, value in sorted(environ.items())
        if name.startswith(("RABBITMQ_", "FLUFFLE_"))
    }
