"""The servers that the conformance tests run against: Fluffle in this process, or a real RabbitMQ.

Both give an address and an `Admin`, the few operator's actions that a row of the reference needs. Each server
is private to the test run: own ports, own data directory, stopped by its own process id.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.kit.fluffle_process import FluffleProcess
from tests.kit.fluffle_server import FluffleServer
from tests.kit.rabbit_server import RabbitServer

Settings = Mapping[str, str]
"""Keys of rabbitmq.conf, which are those of fluffle.conf."""


class Admin(Protocol):
    """The operations of an operator. A call returns when the server has done it; a refusal is a RuntimeError."""

    def add_user(self, name: str, password: str, tags: Sequence[str] = ()) -> None: ...
    def delete_user(self, name: str) -> None: ...
    def change_password(self, name: str, password: str) -> None: ...
    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None: ...
    def clear_permissions(self, user: str, vhost: str) -> None: ...
    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None: ...
    def add_vhost(self, name: str) -> None: ...
    def delete_vhost(self, name: str) -> None: ...
    def set_tracing(self, vhost: str, is_on: bool) -> None: ...
    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
    ) -> None: ...
    def clear_policy(self, vhost: str, name: str) -> None: ...
    def set_operator_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "queues",
    ) -> None: ...
    def clear_operator_policy(self, vhost: str, name: str) -> None: ...
    def set_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None: ...
    def set_user_limits(self, user: str, limits: Mapping[str, int]) -> None: ...
    def close_all_connections(self, reason: str) -> None: ...
    def list_queues(self, vhost: str) -> list[str]: ...

    def set_alarm(self, resource: str) -> None:
        """Make the server believe that it is short of `memory` or `disk`, until `clear_alarm`."""

    def clear_alarm(self, resource: str) -> None: ...


class Server(Protocol):
    """A running broker with the user guest/guest, who may do everything in the vhost `/`."""

    host: str
    port: int

    @property
    def management_url(self) -> str:
        """The URL of the HTTP API, without /api; "" if it is off."""

    @property
    def prometheus_url(self) -> str:
        """The URL of the metrics, without /metrics; "" if they are off."""

    @property
    def admin(self) -> Admin: ...

    def stop(self) -> None:
        """Stop gracefully, as SIGTERM does; clients get their 320. Stopping twice is harmless."""


class RestartableServer(Server, Protocol):
    """A server in a process of its own, which keeps data, address and settings from one life to the next."""

    def halt(self) -> None:
        """Stop gracefully; `boot` starts the server again."""

    def crash(self) -> None:
        """Kill the server (SIGKILL)."""

    def boot(self) -> None:
        """Start the server again after `halt` or `crash`."""


def start_server(
    settings: Settings | None = None, *, with_management: bool = False, plugins: Sequence[str] = ()
) -> Server:
    """Start what FLUFFLE_TEST_AGAINST names: `fluffle` (the default) or `rabbitmq`.

    settings: keys that differ from the defaults, e.g. {"consumer_timeout": "1000"}.
    with_management: with its HTTP API and metrics. RabbitMQ starts slower then, Fluffle in another process.
    plugins: plug-ins that are enabled.
    """
    if _is_rabbitmq():
        return RabbitServer(settings or {}, with_management=with_management, plugins=plugins)
    if with_management:
        # Late: it imports modules that import this one.
        from tests.kit.managed_fluffle import ManagedFluffle

        return ManagedFluffle(settings or {}, plugins)
    return FluffleServer(settings or {}, plugins=plugins)


def start_restartable_server(
    settings: Settings | None = None, parent: Path | None = None
) -> RestartableServer:
    """Start a server for tests that stop or kill it and start it again.   parent: the parent of its directory."""
    kind = RabbitServer if _is_rabbitmq() else FluffleProcess
    return kind(settings or {}, parent)


def _is_rabbitmq() -> bool:
    against = os.environ.get("FLUFFLE_TEST_AGAINST", "fluffle")
    if against not in ("fluffle", "rabbitmq"):
        raise RuntimeError(f"FLUFFLE_TEST_AGAINST must be fluffle or rabbitmq, not {against!r}")
    return against == "rabbitmq"
