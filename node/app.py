"""The composition root: builds a node out of its parts and starts them. Time and randomness come from here."""

import gc
import logging
import os
import re
import time
from typing import Final

from node import log_phrases
from node.broker.broker import Broker, text_properties
from node.broker.commands import SetGlobalParameter, seed_commands
from node.broker.paging import Pager
from node.broker.passwords import SALT_BYTES, hash_password
from node.broker.settings import BrokerSettings
from node.config import AuthOptions, Config
from node.config_file import ConfigError
from node.io.log_observer import LogObserver
from node.io.persistence import Persistence
from node.io.resource_guard import ResourceGuard
from node.io.resources import total_memory_bytes
from node.io.server import Server
from node.log import NODE_PROCESS, category_logger
from node.version import VERSION

_GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Python looks for cycles after so many new objects. Its default of 700 would look through every queued run
again and again; the hot paths make no cycles."""


class Node:
    """One broker with its listeners. `await start()`, then `await stop()`; not to be started again."""

    def __init__(
        self,
        config: Config,
        *,
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger] | None" = None,
    ) -> None:
        self.config = config
        self._logger = logger or category_logger()
        self.broker: Broker
        """From `start` on."""
        self.listeners: list[tuple[str, int]] = []
        self._guard = ResourceGuard(config, total_memory_bytes(config.memory.total_override_bytes))
        self._persistence: Persistence | None = None
        self._server: Server | None = None

    @property
    def metadata(self):  # type: ignore[no-untyped-def]
        """The log by which the catalogue is changed."""
        return self.broker.log

    async def start(self) -> None:
        """Read what is on disk, seed what is empty, and accept clients. Raises: OSError, ConfigError."""
        gc.set_threshold(*_GC_THRESHOLDS)
        self._persistence = persistence = Persistence(self.config, self._guard.disk_unwritable)
        self.broker = Broker(
            broker_settings(self.config),
            entropy=os.urandom,
            epoch_s=time.time() - time.monotonic(),
            observer=LogObserver(),
            storage=persistence.store,
            pager=Pager(self._guard.memory.paging_bytes),
            catalogue=persistence.catalogue,
            timers=persistence.timers,
        )
        self.broker.start(time.monotonic())
        try:
            is_known = self._load(persistence)
            persistence.start()
            if is_known:
                self._logger.info(log_phrases.will_not_seed())
            else:
                self._seed()
            self._server = Server(self.broker, self.config, on_refused=self._refused)
            listeners = await self._server.listen()
        except (OSError, ConfigError):
            await self.stop()
            raise
        self._guard.start(self.broker)
        self.listeners = [(listener.address.host, listener.address.port) for listener in listeners]
        for listener in listeners:
            self._logger.info(log_phrases.listener_started(str(listener.address), tls=listener.is_tls))

    async def stop(self) -> bool:
        """Stop accepting, tell clients (320), close; write what is left. Returns: whether that is on disk."""
        self._guard.stop()
        if self._server is not None:
            for listener in await self._server.stop():
                self._logger.info(log_phrases.listener_stopped(str(listener.address), tls=listener.is_tls))
        return self._persistence is None or await self._persistence.stop(self.broker)

    def close_all_connections(self, reason: str) -> None:
        """Close every connection with 320 and this reason."""
        self.broker.close_connections(reason)

    def _load(self, persistence: Persistence) -> bool:
        gc.disable()  # it would look through the growing catalogue again and again
        try:
            return persistence.load(self.broker)
        finally:
            gc.enable()

    def _seed(self) -> None:
        """Fill the empty catalogue with the default vhost and user. Raises: ConfigError for a refused password."""
        seed, algorithm = self.config.seed, self.config.auth.password_hashing
        check_password(self.config.auth, seed.password)
        self._logger.info(log_phrases.will_seed())
        commands = seed_commands(
            vhost=seed.vhost,
            user=seed.user,
            password_hash=hash_password(seed.password, os.urandom(SALT_BYTES), algorithm),
            hashing_algorithm=algorithm,
            tags=seed.tags,
            permissions=(seed.configure, seed.write, seed.read),
        )
        for command in commands:
            self.broker.log.submit(command)
        self.broker.log.submit(SetGlobalParameter("cluster_name", self.config.cluster_name))
        self._logger.info(log_phrases.vhost_added(seed.vhost, "Default virtual host"))
        self._logger.info(log_phrases.user_created(seed.user))
        self._logger.info(log_phrases.user_tags_set(seed.user, seed.tags))
        self._logger.info(
            log_phrases.permissions_set(seed.user, seed.vhost, seed.configure, seed.write, seed.read)
        )

    def _refused(self, reason: str) -> None:
        category_logger("connection").error(log_phrases.socket_error(NODE_PROCESS, reason))


def check_password(auth: AuthOptions, password: str) -> None:
    """Hold a new password against the credential validator. Raises: ConfigError."""
    shortest, pattern = auth.password_length_min, auth.password_regexp
    if shortest is not None and len(password) < shortest:
        raise ConfigError([f"default_pass: the validator asks for at least {shortest} characters"])
    if pattern is not None and re.search(pattern, password) is None:
        raise ConfigError([f"default_pass: the validator asks for a match of {pattern}"])


def broker_settings(config: Config) -> BrokerSettings:
    """What the broker's rules need of the configuration."""
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
    )
