"""A Fluffle node in a thread of the test process, with its own event loop, and its operator.

In the same process, so that the operator can submit commands to the metadata log as the management API does.
"""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import uvloop

from node.catalogue import commands
from node.catalogue.commands import Command, Refused
from node.catalogue.passwords import DEFAULT_ALGORITHM, SALT_BYTES, hash_password
from node.catalogue.records import ApplyTo, UserLimits
from node.cli.start import DiskFiles
from node.client.alarms import Resource
from node.config.load import StartOptions, load_config
from node.io.plugin_packages import enabling

if TYPE_CHECKING:
    from node.app import Node

TIMEOUT_S: Final = 30.0

T = TypeVar("T")


class FluffleServer:
    """A node of Fluffle on a free port, in a directory that is removed with it.

    directory: one that is kept instead.   port: 0 for a free one.
    plugins: those that are enabled; empty: the default.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        directory: Path | None = None,
        port: int = 0,
        plugins: Sequence[str] = (),
    ) -> None:
        # Late, so that a run against RabbitMQ works while the node does not.
        from node.app import Node

        self._is_kept = directory is not None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="fluffle-node-"))
        configuration = self._directory / "fluffle.conf"
        configuration.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        if plugins:
            (self._directory / "enabled_plugins").write_text(f"[{','.join(plugins)}].")
        options = StartOptions(
            name="conformance",
            data=str(self._directory / "data"),
            listen=(f"127.0.0.1:{port}",),
            config=str(configuration),
        )
        config = load_config(options, {}, DiskFiles(), hostname="localhost")
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fluffle", daemon=True)
        self._thread.start()
        self._node = Node(config)
        try:
            self._run(self._node.start())
        except BaseException:
            self._end_thread()
            raise
        self.host, self.port = self._node.listeners[0]
        self.management_url = self.prometheus_url = ""
        self.admin = FluffleAdmin(self._node, self._call)
        self._stopped = False

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            self._run(self._node.stop())
        finally:
            self._end_thread()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def _call(self, action: Callable[[Future[T]], None]) -> T:
        """Have the loop's thread start `action`; wait until it or what it began sets the result."""
        future: Future[T] = Future()

        def guarded() -> None:
            try:
                action(future)
            except Exception as error:
                future.set_exception(error)
                raise

        self._loop.call_soon_threadsafe(guarded)
        return future.result(TIMEOUT_S)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
        if not self._is_kept:
            shutil.rmtree(self._directory, ignore_errors=True)


class FluffleAdmin:
    """An `Admin` that submits commands to the metadata log."""

    def __init__(self, node: "Node", call: Callable[[Callable[[Future[Any]], None]], Any]) -> None:
        self._node = node
        self._call = call

    def _submit(self, command: Command[Any]) -> Any:
        result = self._call(lambda future: self._node.broker.log.submit(command, future.set_result))
        if isinstance(result, Refused):
            raise RuntimeError(f"{command}: {result.text}")
        return result

    def _delete(self, command: Command[bool]) -> None:
        if not self._submit(command):
            raise RuntimeError(f"{command}: there is none")

    def _read(self, get: Callable[[], T]) -> T:
        value: T = self._call(lambda future: future.set_result(get()))
        return value

    def add_user(self, name: str, password: str, tags: Sequence[str] = ()) -> None:
        password_hash = hash_password(password, os.urandom(SALT_BYTES))
        self._submit(commands.PutUser(name, password_hash, DEFAULT_ALGORITHM, tuple(tags)))

    def delete_user(self, name: str) -> None:
        self._delete(commands.DeleteUser(name))

    def change_password(self, name: str, password: str) -> None:
        user = self._read(lambda: self._node.broker.catalogue.user(name))
        if user is None:
            raise RuntimeError(f"there is no user {name!r}")
        self.add_user(name, password, user.tags)

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._submit(commands.SetPermission(vhost, user, configure, write, read))

    def clear_permissions(self, user: str, vhost: str) -> None:
        self._submit(commands.ClearPermission(vhost, user))

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self._submit(commands.SetTopicPermission(vhost, user, exchange, write, read))

    def add_vhost(self, name: str) -> None:
        self._submit(commands.PutVhost(name))

    def delete_vhost(self, name: str) -> None:
        self._delete(commands.DeleteVhost(name))

    def enable_plugin(self, name: str) -> None:
        """Enable an installed plug-in on all nodes, as `fluffle plugins enable` does."""
        command = enabling(name)
        assert command is not None, name
        self._submit(command)

    def disable_plugin(self, name: str) -> None:
        """Disable a plug-in on all nodes."""
        self._submit(commands.DisablePlugin(name))

    def set_tracing(self, vhost: str, is_on: bool) -> None:
        self._submit(commands.PutVhost(vhost, metadata={"tracing": is_on}))

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
    ) -> None:
        target = cast(ApplyTo, apply_to)
        self._submit(commands.SetPolicy(vhost, name, pattern, dict(definition), priority, target))

    def clear_policy(self, vhost: str, name: str) -> None:
        self._delete(commands.ClearPolicy(vhost, name))

    def set_operator_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "queues",
    ) -> None:
        target = cast(ApplyTo, apply_to)
        self._submit(
            commands.SetPolicy(vhost, name, pattern, dict(definition), priority, target, operator=True)
        )

    def clear_operator_policy(self, vhost: str, name: str) -> None:
        self._delete(commands.ClearPolicy(vhost, name, operator=True))

    def set_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None:
        self._submit(commands.SetParameter(vhost, "vhost-limits", "limits", dict(limits)))

    def set_user_limits(self, user: str, limits: Mapping[str, int]) -> None:
        named = UserLimits(limits.get("max-connections"), limits.get("max-channels"))
        self._submit(commands.SetUserLimits(user, named))

    def close_all_connections(self, reason: str) -> None:
        self._read(lambda: self._node.close_all_connections(reason))

    def list_queues(self, vhost: str) -> list[str]:
        return self._read(lambda: [queue.name for queue in self._node.broker.catalogue.queues(vhost)])

    def set_alarm(self, resource: str) -> None:
        # The monitors tell of changes only, so they leave this one alone.
        self._read(lambda: self._node.broker.alarms.set(cast(Resource, resource)))

    def clear_alarm(self, resource: str) -> None:
        self._read(lambda: self._node.broker.alarms.clear(cast(Resource, resource)))
