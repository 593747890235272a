"""The composition root of a broker builds it out of its parts and starts them. Time and randomness come from here.

A node of a cluster has the same parts, but its metadata come from the cluster and some of its queues live on its peers;
the parts that make it a member are around it (`node.process`, `node.clustering`).
"""

import asyncio
import gc
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from node.broker.broker import Broker
from node.broker.event_exchange import EventExchange
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, SetGlobalParameter, seed_commands
from node.catalogue.passwords import SALT_BYTES, hash_password
from node.catalogue.replicated_log import React, ReplicatedLog
from node.catalogue.snapshot import everything
from node.client.client_names import Claim
from node.client.counters import BrokerCounters
from node.client.observer import Observer, Observers
from node.client.server_properties import text_properties
from node.client.settings import BrokerSettings
from node.config.auth import INTERNAL
from node.config.config import AuthOptions, Config
from node.config.file import ConfigError
from node.config.plugins import EVENTS, FOR_ALL_NODES, PLUGINS, with_needed
from node.io.interceptor_plugins import InterceptorPlugins
from node.io.log_exchange import LogExchange
from node.io.log_observer import LogObserver
from node.io.mirroring_events import MirroringEvents
from node.io.persistence import Persistence
from node.io.plugin_listeners import OpenListener, PluginListeners
from node.io.plugin_packages import load_plugin
from node.io.plugin_services import PluginServices
from node.io.resource_guard import ResourceGuard
from node.io.resources import total_memory_bytes
from node.io.server import Listener, Server
from node.io.tls import server_context
from node.log import phrases
from node.log.log import NODE_PROCESS, category_logger, escape
from node.queue.live_queue import Peers
from node.queue.metering import Meter
from node.queue.paging import Pager
from node.version import VERSION

if TYPE_CHECKING:
    from node.io.auth_backends import AuthBackends

GC_THRESHOLDS: Final = (2_000, 5, 10_000)
"""Thresholds of Python's cycle collector: new objects, young collections, and middle collections before the next
larger one.

Its default of 700 would look through every queued run again and again; the hot paths make no cycles. The first
collection holds the loop for 0.4 ms and the second for some 2.5 ms, whatever waits in queues; the third, which takes a
second for some millions of objects, comes after a hundred million new ones.
"""


class ClusterLog(ReplicatedLog, Protocol):
    """The log of the cluster's metadata."""

    catalogue: Catalogue

    def attach(self, react: React) -> None:
        """Call `react` with each change from now on."""

    def detach(self) -> None:
        """Report changes to no broker any more."""


class ClusterSide(Protocol):
    """The part of the cluster that a broker uses."""

    @property
    def log(self) -> ClusterLog:
        """The log of the cluster's metadata, which are here when a broker starts."""

    def peers(self, broker: Broker) -> Peers:
        """Return the connection to the queues of other nodes. It delivers nothing before the loop's next turn."""

    async def enter(self) -> None:
        """Make the node count as up, and return when it may serve. Raises: OSError."""


class Node:
    """One broker with its listeners. `await start()`, then `await stop()`; it cannot be started again.

    cluster: None for a node without one.   mirroring_events: the store for them; None: one that lives as long as the
    node.
    observer: gets events, in addition to the log.   on_failed: see `Persistence`.   on_held: see `Server`.
    claims: asks the other nodes for the names of clients, see `ClientNames.elsewhere`.
    """

    def __init__(
        self,
        config: Config,
        *,
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger] | None" = None,
        cluster: ClusterSide | None = None,
        mirroring_events: MirroringEvents | None = None,
        observer: Observer | None = None,
        on_failed: Callable[[], None] = lambda: None,
        on_held: Callable[[float], None] = lambda seconds: None,
        claims: Callable[[Claim, Callable[[bool], None]], None] | None = None,
    ) -> None:
        self.config = config
        self._claims = claims
        self._on_held = on_held
        self._on_failed = on_failed
        self._watching = observer
        self.mirroring_events = mirroring_events or MirroringEvents()
        self._cluster = cluster
        self._logger = logger or category_logger()
        self._auth_backends: AuthBackends | None = None
        self._plugin_listeners: PluginListeners | None = None
        self.services: PluginServices | None = None
        """The services of plug-ins; None until the node serves clients."""
        self.broker: Broker
        """The broker; it exists from `start` on."""
        self.listeners: list[tuple[str, int]] = []
        self.tls_listeners: frozenset[tuple[str, int]] = frozenset()
        """The members of `listeners` that require TLS."""
        self.guard = ResourceGuard(config, total_memory_bytes(config.memory.total_override_bytes))
        self._persistence: Persistence | None = None
        self._server: Server | None = None
        self._events = EventExchange(config.seed.vhost) if EVENTS in (config.enabled_plugins or ()) else None
        self._log_exchange: LogExchange | None = None

    @property
    def disk_progress(self) -> tuple[int, bool]:
        """A number that grows with the work of the message disk, and whether the disk is busy."""
        return (0, False) if self._persistence is None else self._persistence.disk_progress

    @property
    def disk_thread_id(self) -> int | None:
        """The kernel's number of the thread of the message disk; None: it does not run."""
        return None if self._persistence is None else self._persistence.disk_thread_id

    async def start(self) -> None:
        """Read the data on disk, seed an empty database, and accept clients. Raises: OSError, ConfigError."""
        gc.set_threshold(*GC_THRESHOLDS)
        catalogue = self._cluster.log.catalogue if self._cluster is not None else None
        self._persistence = persistence = Persistence(
            self.config, self.guard.disk_unwritable, catalogue, on_failed=self._on_failed
        )
        self.broker = Broker(
            broker_settings(self.config),
            entropy=os.urandom,
            epoch_s=time.time() - time.monotonic(),
            observer=self._observer(),
            storage=persistence.store,
            pager=Pager(self.guard.memory.paging_bytes),
            catalogue=persistence.catalogue,
            timers=persistence.timers,
            meter=Meter(time.perf_counter_ns, time.thread_time_ns) if self.config.telemetry.is_on else None,
            clock=time.monotonic,
            load_plugin=load_plugin,
        )
        self.broker.client_names.elsewhere = self._claims
        self.broker.start(time.monotonic())
        try:
            is_known = self._load(persistence)
            self.broker.counters = BrokerCounters()  # recovery must not count as traffic
            persistence.start()
            if is_known:
                self._logger.info(phrases.will_not_seed())
            else:
                self._seed()
            self._server = Server(
                self.broker, self.config, on_refused=self._refused, on_held=self._held_by(self.broker.meter)
            )
            if self._cluster is not None:
                await self._cluster.enter()  # from here on the other nodes may speak to this one
            self._publish_what_happens()
            await self._enable_plugins()
            self._begin_auth_backends()
            InterceptorPlugins(self.broker, self.config.plugin_settings)
            await self._load_definitions()
            listeners = await self._server.listen()
            self._plugin_listeners = PluginListeners(
                self._server,
                self.config.plugin_settings,
                lambda: server_context(self.config.tls),
                self._plugin_listeners_changed,
            )
            await self._plugin_listeners.accept()
            self.services = PluginServices(self.broker, self.config)
        except BaseException:
            await self.stop()
            raise
        self.guard.start(self.broker)
        self._tell_started(listeners)

    async def stop(self) -> bool:
        """Accept no more clients, close all connections (320), write what is left. Returns True if that is on disk."""
        self.guard.stop()
        if self.services is not None:
            await self.services.stop()
        if self._log_exchange is not None:
            self._log_exchange.stop()
        if self._plugin_listeners is not None:
            self._plugin_listeners.stop()
        if self._server is not None:
            self._tell_stopped(await self._server.stop())
            if self.broker.peers is not None:
                self.broker.peers.close()
            if self.broker.mirrors is not None:
                self.broker.mirrors.close_all()
        if self._auth_backends is not None:
            await self._auth_backends.stop()
        if self._cluster is not None:
            self._cluster.log.detach()
        try:
            return self._persistence is None or await self._persistence.stop(self.broker)
        finally:
            if self._server is not None:
                self._server.end()

    def close_all_connections(self, reason: str) -> None:
        """Close every connection with 320 and this reason."""
        self.broker.close_connections(reason)

    def suspend_listeners(self) -> None:
        """Accept no new clients for now; present connections stay."""
        if self._server is not None:
            self._tell_stopped(self._server.suspend())
            self.listeners = []
        if self._plugin_listeners is not None:
            self._plugin_listeners.suspend()

    async def resume_listeners(self) -> None:
        """Accept clients again. Raises: OSError."""
        if self._server is not None and not self.listeners:
            self._tell_started(await self._server.listen())
            if self._plugin_listeners is not None:
                await self._plugin_listeners.accept()

    @property
    def plugin_listeners(self) -> list[OpenListener]:
        """The open listeners of plug-ins' protocols."""
        return [] if self._plugin_listeners is None else self._plugin_listeners.listeners

    def _plugin_listeners_changed(self, opened: list[OpenListener], closed: list[OpenListener]) -> None:
        for each in opened:
            self._logger.info(
                phrases.plugin_listener_started(each.protocol, str(each.address), tls=each.is_tls)
            )
        for each in closed:
            self._logger.info(
                phrases.plugin_listener_stopped(each.protocol, str(each.address), tls=each.is_tls)
            )

    def _tell_started(self, listeners: list[Listener]) -> None:
        self.listeners = [(listener.address.host, listener.address.port) for listener in listeners]
        self.tls_listeners = frozenset(
            place for place, each in zip(self.listeners, listeners, strict=True) if each.is_tls
        )
        for listener in listeners:
            self._logger.info(phrases.listener_started(str(listener.address), tls=listener.is_tls))

    def _tell_stopped(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            self._logger.info(phrases.listener_stopped(str(listener.address), tls=listener.is_tls))

    def _held_by(self, meter: Meter | None) -> Callable[[float], None]:
        """Return what is called at the end of each turn: a meter measures the turns' CPU time."""
        if meter is None:
            return self._on_held
        end_turn, on_held = meter.windows.end_turn, self._on_held

        def held(seconds: float) -> None:
            end_turn()
            on_held(seconds)

        return held

    def _observer(self) -> Observer:
        log_observer = LogObserver(self.mirroring_events)
        others = [each for each in (self._events, self._watching) if each is not None]
        return Observers(log_observer, *others) if others else log_observer

    def _publish_what_happens(self) -> None:
        """Declare and feed the exchanges for events and for lines of the log, where they are on."""
        if self._events is not None:
            self.broker.log.submit(self._events.declaration)
            self._events.attach(self.broker)
        if self.config.log.exchange is not None:
            call_soon = asyncio.get_running_loop().call_soon_threadsafe
            self._log_exchange = LogExchange(self.config.log, self.config.seed.vhost, call_soon)
            self.broker.log.submit(self._log_exchange.declaration)
            self._log_exchange.start(self.broker)

    async def _enable_plugins(self) -> None:
        """Enable the configured plug-ins that bring something to all nodes, on all of them, before definitions need it.

        A name without a plug-in has no effect: the file may be shared with RabbitMQ.
        """
        enabled = self.config.enabled_plugins or ()
        names = [
            name
            for name in dict.fromkeys((*with_needed(enabled), *enabled))
            if name in FOR_ALL_NODES or name not in PLUGINS
        ]
        if not names:
            return
        from node.admin.admin import Admin, AdminError
        from node.admin.definitions import AT_BOOT
        from node.admin.plugins import SettingsRefused, enable_plugin

        admin = Admin(self.broker, self.config, self._logger, AT_BOOT)
        for name in names:
            try:
                await enable_plugin(admin, name)
            except SettingsRefused as error:
                raise ConfigError(error.problems) from None
            except AdminError as error:
                if error.kind != "not_found":
                    self._logger.error(f"Plugin '{escape(name)}' is not enabled: {escape(error.text)}")

    def _begin_auth_backends(self) -> None:
        """Have logins and permissions asked of the configured auth backends, if there are others than the catalogue.

        Raises: ConfigError if no enabled plug-in brings one of them: clients could never log in.
        """
        auth = self.config.auth
        if all(step == (INTERNAL, INTERNAL) for step in auth.steps):
            return
        from node.io.auth_backends import AuthBackends

        backends = AuthBackends(
            self.broker,
            auth.steps,
            settings=self.config.plugin_settings,
            kept_s=auth.answers_kept_s,
            clock=time.monotonic,
        )
        missing = backends.missing()
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise ConfigError([f"auth_backends: no enabled plug-in of this node brings {names}"])
        self._auth_backends = self.broker.authority = backends

    def _load(self, persistence: Persistence) -> bool:
        gc.disable()  # the collector would look through the growing catalogue again and again
        try:
            if self._cluster is not None:
                self.broker.log = self._cluster.log
                self._cluster.log.attach(self.broker.react)
                self.broker.peers = self._cluster.peers(self.broker)
                self.broker.react(list(everything(self.broker.catalogue)))
            return persistence.load(self.broker)
        finally:
            gc.enable()

    async def _load_definitions(self) -> None:
        """Import the configured definitions. Raises: ConfigError."""
        path = self.config.definitions.path
        if path is None:
            return
        from node.admin.admin import Admin
        from node.admin.definitions import AT_BOOT, DefinitionsUnreadable, load_at_boot

        try:
            await load_at_boot(Admin(self.broker, self.config, self._logger, AT_BOOT), path)
        except DefinitionsUnreadable as error:
            raise ConfigError([f"load_definitions: {error}"]) from error

    def _seed(self) -> None:
        """Fill the empty catalogue. Raises: ConfigError for a refused password."""
        for command in first_commands(self.config):
            self.broker.log.submit(command)
        log_first_commands(self.config, self._logger)

    def _refused(self, reason: str) -> None:
        category_logger("connection").error(phrases.socket_error(NODE_PROCESS, reason))


def first_commands(config: Config) -> "list[Command[Any]]":
    """Return the commands that fill an empty catalogue: names, and the default vhost and user unless definitions are
    loaded.

    Raises: ConfigError for a refused password.
    """
    named: list[Command[Any]] = [
        SetGlobalParameter("cluster_name", config.cluster_name),
        SetGlobalParameter("internal_cluster_id", f"rabbitmq-cluster-id-{uuid.uuid4()}"),
    ]
    if config.definitions.path is not None:
        return named
    seed, algorithm = config.seed, config.auth.password_hashing
    check_password(config.auth, seed.password)
    commands = seed_commands(
        vhost=seed.vhost,
        user=seed.user,
        password_hash=hash_password(seed.password, os.urandom(SALT_BYTES), algorithm),
        hashing_algorithm=algorithm,
        tags=seed.tags,
        permissions=(seed.configure, seed.write, seed.read),
    )
    return [*commands, *named]


def log_first_commands(
    config: Config, logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]"
) -> None:
    """Log the effect of `first_commands`, in RabbitMQ's words."""
    if config.definitions.path is not None:
        return
    seed = config.seed
    logger.info(phrases.will_seed())
    logger.info(phrases.vhost_added(seed.vhost, "Default virtual host"))
    logger.info(phrases.user_created(seed.user))
    logger.info(phrases.user_tags_set(seed.user, seed.tags))
    logger.info(phrases.permissions_set(seed.user, seed.vhost, seed.configure, seed.write, seed.read))


def check_password(auth: AuthOptions, password: str) -> None:
    """Check a new password with the credential validator. Raises: ConfigError."""
    shortest, pattern = auth.password_length_min, auth.password_regexp
    if shortest is not None and len(password) < shortest:
        raise ConfigError([f"default_pass: the validator asks for at least {shortest} characters"])
    if pattern is not None and re.search(pattern, password) is None:
        raise ConfigError([f"default_pass: the validator asks for a match of {pattern}"])


def broker_settings(config: Config) -> BrokerSettings:
    """Return the part of the configuration that the broker's rules need."""
    amqp, auth, network = config.amqp, config.auth, config.network
    return BrokerSettings(
        node_name=config.node_name,
        server_properties=text_properties(
            copyright="Copyright (c) 2026 the Fluffle contributors.",
            information=f"Fluffle {VERSION}, a broker in Python. Licensed under the Apache License 2.0.",
            platform=f"Fluffle {VERSION}",
            product=config.product.name,
            version=config.product.version,
        ),
        mechanisms=auth.mechanisms,
        loopback_users=auth.loopback_users,
        frame_max_bytes=amqp.frame_max_bytes,
        initial_frame_max_bytes=amqp.initial_frame_max_bytes,
        channel_max=amqp.channel_max,
        heartbeat_s=amqp.heartbeat_s,
        connection_max=amqp.connection_max,
        handshake_timeout_s=network.handshake_timeout_s,
        message_max_bytes=amqp.max_message_bytes,
        consumer_timeout_ms=round(amqp.consumer_timeout_s * 1000),
        channel_tick_s=amqp.channel_tick_interval_s,
        default_prefetch=0 if amqp.default_prefetch_global else amqp.default_prefetch_count,
        default_prefetch_limit=amqp.default_prefetch_count if amqp.default_prefetch_global else 0,
        queue_master_locator=config.cluster.queue_master_locator,
    )
