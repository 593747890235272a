"""A private RabbitMQ node for the conformance tests, and its operator.

The operator uses `erl_call`, an Erlang call of some 10 ms, where `rabbitmqctl` needs a second or two.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.kit.ports import free_port, free_ports

RABBITMQ_SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Not /usr/sbin/rabbitmq-server: Debian's wrapper changes the user and the log files."""

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0


def prepare(
    directory: Path,
    node: str,
    cookie: str,
    ports: tuple[int, int, int],
    settings: Mapping[str, str],
    management: tuple[int, int] | None = None,
    plugins: Sequence[str] = (),
) -> dict[str, str]:
    """Write a node's files; give the environment that makes it use nothing else.

    ports: for clients, of its epmd, and for other nodes.
    management: ports of its HTTP API and for Prometheus; None without them, as it starts sooner then.
    plugins: more that are enabled.
    """
    port, epmd_port, dist_port = ports
    enabled = [*plugins]
    if management is not None:
        enabled += ["rabbitmq_management", "rabbitmq_prometheus"]
    (directory / "enabled_plugins").write_text(f"[{','.join(enabled)}].")
    (directory / "env.conf").touch()
    lines = [f"listeners.tcp.1 = 127.0.0.1:{port}"]
    if management is not None:
        for plugin, plugin_port in zip(("management", "prometheus"), management, strict=True):
            lines += [f"{plugin}.tcp.ip = 127.0.0.1", f"{plugin}.tcp.port = {plugin_port}"]
    lines += [f"{key} = {value}" for key, value in settings.items()]
    (directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    cookie_file = directory / ".erlang.cookie"
    cookie_file.write_text(cookie)
    cookie_file.chmod(0o400)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": node,
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "env.conf"),
        # No busy waiting: the machine is shared. And nothing beyond loopback.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none"
        " -kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CTL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none +S 1",
    }


class RabbitServer:
    """A RabbitMQ node of our own, with its own epmd, in a directory that goes away with it.

    parent: where that directory is made, if not among the temporary ones.
    with_management: with the HTTP API and the metrics for Prometheus; the start takes longer.
    plugins: more that are enabled.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        parent: Path | None = None,
        *,
        with_management: bool = False,
        plugins: Sequence[str] = (),
    ) -> None:
        self.host = "127.0.0.1"
        self.port, epmd_port, dist_port = free_ports(3)
        self._directory = Path(tempfile.mkdtemp(prefix="fluffle-rabbitmq-", dir=parent))
        self._node = f"fluffle-test-{self.port}@localhost"
        self._cookie = secrets.token_hex(8)
        ports = (self.port, epmd_port, dist_port)
        self.management_url = self.prometheus_url = ""
        management = None
        if with_management:
            management = http_port, prometheus_port = (free_port(), free_port())
            self.management_url = f"http://{self.host}:{http_port}"
            self.prometheus_url = f"http://{self.host}:{prometheus_port}"
        self._environment = prepare(
            self._directory, self._node, self._cookie, ports, settings, management, plugins
        )
        self._epmd = subprocess.Popen(["epmd", "-port", str(epmd_port)], env=self._environment)
        self.admin = RabbitAdmin(self.evaluate)
        self._process = self._launch()
        self._wait_until_ready()

    def _launch(self) -> subprocess.Popen[bytes]:
        with open(self._directory / "stdout", "wb") as output:
            return subprocess.Popen(
                [RABBITMQ_SERVER],
                env=self._environment,
                cwd=self._directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        output = self._directory / "stdout"
        while "Starting broker... completed" not in (text := output.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"RabbitMQ did not start:\n{text}")
            time.sleep(0.1)

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression in the node; give the value as Erlang prints it on one line."""
        program = f'lists:flatten(io_lib:format("~0p", [begin {expression} end])).\n'
        done = self._erl_call("-e", program)
        text = done.stdout.decode()
        if not text.startswith('{ok, "'):
            raise RuntimeError(f"{expression}: {text} {done.stderr.decode()}")
        return text.removeprefix('{ok, "').removesuffix('"}').replace('\\"', '"')

    def halt(self) -> None:
        # `rabbitmqctl shutdown` in effect; the answer is lost when the node goes.
        self._erl_call("-a", "", "init stop []")
        _wait_or_kill(self._process)

    def crash(self) -> None:
        # Ours is the shell script's process; the node is its child.
        os.kill(int(self.evaluate("list_to_integer(os:getpid())")), signal.SIGKILL)
        _wait_or_kill(self._process)

    def boot(self) -> None:
        assert self._process.poll() is not None
        self._process = self._launch()
        self._wait_until_ready()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.halt()
        self._epmd.terminate()
        _wait_or_kill(self._epmd)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _erl_call(
        self, option: str, standard_input: str, *arguments: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["erl_call", "-c", self._cookie, "-sname", self._node, option, *arguments],
            input=standard_input.encode(),
            env=self._environment,
            capture_output=True,
            timeout=30,
            check=False,
        )


class RabbitAdmin:
    """`Admin` by calls of the functions behind rabbitmqctl."""

    def __init__(self, evaluate: Callable[[str], str]) -> None:
        self._evaluate = evaluate

    def _call(self, function: str, *arguments: object) -> None:
        terms = ", ".join(_term(argument) for argument in (*arguments, "conformance test"))
        result = self._evaluate(
            f"case {function}({terms}) of {{error, E}} -> {{refused, E}};"
            " {error_string, E} -> {refused, E}; _ -> done end"
        )
        if result != "done":
            raise RuntimeError(f"{function}({terms}): {result}")

    def add_user(self, name: str, password: str, tags: Sequence[str] = ()) -> None:
        self._call("rabbit_auth_backend_internal:add_user", name, password)
        self._call("rabbit_auth_backend_internal:set_tags", name, [_Atom(tag) for tag in tags])

    def delete_user(self, name: str) -> None:
        self._call("rabbit_auth_backend_internal:delete_user", name)

    def change_password(self, name: str, password: str) -> None:
        self._call("rabbit_auth_backend_internal:change_password", name, password)

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._call("rabbit_auth_backend_internal:set_permissions", user, vhost, configure, write, read)

    def clear_permissions(self, user: str, vhost: str) -> None:
        self._call("rabbit_auth_backend_internal:clear_permissions", user, vhost)

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self._call("rabbit_auth_backend_internal:set_topic_permissions", user, vhost, exchange, write, read)

    def add_vhost(self, name: str) -> None:
        self._call("rabbit_vhost:add", name)

    def delete_vhost(self, name: str) -> None:
        self._call("rabbit_vhost:delete", name)

    def set_tracing(self, vhost: str, is_on: bool) -> None:
        self._evaluate(f"rabbit_trace:{'start' if is_on else 'stop'}({_term(vhost)})")

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
    ) -> None:
        arguments = (vhost, name, pattern, json.dumps(definition), str(priority), apply_to)
        self._call("rabbit_policy:parse_set", *arguments)

    def clear_policy(self, vhost: str, name: str) -> None:
        self._call("rabbit_policy:delete", vhost, name)

    def set_operator_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "queues",
    ) -> None:
        arguments = (vhost, name, pattern, json.dumps(definition), str(priority), apply_to)
        self._call("rabbit_policy:parse_set_op", *arguments)

    def clear_operator_policy(self, vhost: str, name: str) -> None:
        self._call("rabbit_policy:delete_op", vhost, name)

    def set_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None:
        self._call("rabbit_vhost_limit:parse_set", vhost, json.dumps(limits))

    def set_user_limits(self, user: str, limits: Mapping[str, int]) -> None:
        self._call("rabbit_auth_backend_internal:set_user_limits", user, json.dumps(limits))

    def close_all_connections(self, reason: str) -> None:
        binary = _term(reason)
        self._evaluate(
            f"[rabbit_networking:close_connection(Pid, binary_to_list({binary}))"
            " || Pid <- rabbit_networking:connections()]"
        )

    def list_queues(self, vhost: str) -> list[str]:
        names = self._evaluate(
            "[binary_to_list(base64:encode(element(4, amqqueue:get_name(Q))))"
            f" || Q <- rabbit_amqqueue:list({_term(vhost)})]"
        )
        return [base64.b64decode(name).decode() for name in json.loads(names)]

    def set_alarm(self, resource: str) -> None:
        # The limits, not the alarm: the monitors would end an alarm without a reason.
        self._evaluate(
            "ok = vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1})"
            if resource == "memory"
            else "ok = rabbit_disk_monitor:set_disk_free_limit(1000000000000000000)"
        )

    def clear_alarm(self, resource: str) -> None:
        self._evaluate(
            "ok = vm_memory_monitor:set_vm_memory_high_watermark(0.4)"
            if resource == "memory"
            else "ok = rabbit_disk_monitor:set_disk_free_limit(50000000)"
        )


class _Atom(str):
    __slots__ = ()


def _term(value: object) -> str:
    """Write a value as Erlang source; a string becomes a binary of byte numbers, so nothing needs quoting."""
    if isinstance(value, _Atom):
        return f"'{value}'"
    if isinstance(value, str):
        return "<<" + ",".join(str(byte) for byte in value.encode()) + ">>"
    if isinstance(value, list):
        return "[" + ",".join(_term(item) for item in value) + "]"
    assert isinstance(value, int), value
    return str(value)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
