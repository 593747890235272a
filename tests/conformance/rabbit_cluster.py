"""A cluster of real RabbitMQ nodes with an epmd and a cookie of its own."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.cluster_api import Cluster, Ctl
from tests.conformance.rabbit_server import (
    RABBITMQ_SERVER,
    START_TIMEOUT_S,
    RabbitAdmin,
    _free_ports,
    _term,
    _wait_or_kill,
)

RABBITMQ_CTL: Final = "/usr/lib/rabbitmq/bin/rabbitmqctl"
"""Not /usr/sbin/rabbitmqctl: Debian's wrapper wants to be root or rabbitmq."""


class RabbitNode:
    """One node. Implements `ClusterNode`."""

    def __init__(
        self, name: str, directory: Path, settings: Mapping[str, str], epmd_port: int, cookie: str
    ) -> None:
        self.name = f"{name}@localhost"
        self.host = "127.0.0.1"
        self.port, self._dist_port = _free_ports(2)
        self._directory = directory / name
        self._directory.mkdir()
        self._cookie = cookie
        self._environment = self._prepare(settings, epmd_port)
        self._beam = 0
        self.admin = RabbitAdmin(self.evaluate)
        self.launch()

    def _prepare(self, settings: Mapping[str, str], epmd_port: int) -> dict[str, str]:
        directory = self._directory
        (directory / "enabled_plugins").write_text("[].")
        (directory / "env.conf").touch()
        lines = [f"listeners.tcp.1 = {self.host}:{self.port}"]
        lines += [f"{key} = {value}" for key, value in settings.items()]
        (directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        cookie = directory / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o400)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
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

    # The process.

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def launch(self) -> None:
        with open(self._directory / "stdout", "wb") as output:
            self._process = subprocess.Popen(
                [RABBITMQ_SERVER],
                env=self._environment,
                cwd=self._directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._beam = 0

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.name not in self.running():
            if not self.is_alive or time.monotonic() > deadline:
                text = (self._directory / "stdout").read_text()
                raise RuntimeError(f"{self.name} did not start:\n{text}")
            time.sleep(0.1)
        self._pid()

    def terminate(self) -> None:
        os.kill(self._pid(), signal.SIGTERM)
        _wait_or_kill(self._process)

    def kill(self) -> None:
        os.kill(self._pid(), signal.SIGKILL)
        _wait_or_kill(self._process)

    def freeze(self) -> None:
        os.kill(self._pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        if self._beam and self.is_alive:
            os.kill(self._beam, signal.SIGCONT)

    def stop(self) -> None:
        if self.is_alive:
            self.thaw()
            with contextlib.suppress(RuntimeError):
                self.kill()
            if self.is_alive:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _pid(self) -> int:
        """The Erlang machine's process, a child of the shell script that is ours."""
        if not self._beam:
            self._beam = int(self.evaluate("list_to_integer(os:getpid())"))
        return self._beam

    # The operator.

    def ctl(self, *arguments: str, timeout_s: float = 60.0) -> Ctl:
        done = subprocess.run(
            [RABBITMQ_CTL, "-n", self.name, *arguments],
            env=self._environment,
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ctl(done.returncode, done.stdout, done.stderr)

    def stop_app(self) -> None:
        self.evaluate("rabbit:stop()")

    def start_app(self) -> None:
        self.evaluate("rabbit:start()")

    def join(self, name: str) -> None:
        """As `stop_app`, `join_cluster`, `start_app`."""
        self.evaluate(f"rabbit:stop(), ok = rabbit_mnesia:join_cluster('{name}', disc), rabbit:start()")

    def home(self, queue: str, vhost: str = "/") -> str:
        value = self.evaluate(
            f"case rabbit_amqqueue:lookup(rabbit_misc:r({_term(vhost)}, queue, {_term(queue)})) of"
            " {ok, Q} -> node(amqqueue:get_pid(Q)); _ -> '' end"
        )
        return value.strip("'")

    def homes(self) -> list[str]:
        value = self.evaluate("[node(amqqueue:get_pid(Q)) || Q <- rabbit_amqqueue:list()]")
        return re.findall(r"[a-z0-9]+@localhost", value)

    def drain(self) -> None:
        self.evaluate("rabbit_maintenance:drain()")

    def revive(self) -> None:
        self.evaluate("rabbit_maintenance:revive()")

    def running(self) -> set[str]:
        try:
            value = self.evaluate(
                "case rabbit:is_booted() of true -> rabbit_nodes:all_running(); false -> [] end"
            )
        except RuntimeError:
            return set()
        return set(re.findall(r"[a-z0-9]+@localhost", value))

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression in the node; give the value as Erlang prints it on one line."""
        program = f'lists:flatten(io_lib:format("~0p", [begin {expression} end])).\n'
        done = subprocess.run(
            ["erl_call", "-c", self._cookie, "-sname", self.name, "-e"],
            input=program.encode(),
            env=self._environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        text = done.stdout.decode()
        if not text.startswith('{ok, "'):
            raise RuntimeError(f"{expression}: {text} {done.stderr.decode()}")
        return text.removeprefix('{ok, "').removesuffix('"}').replace('\\"', '"')


class RabbitCluster:
    """Makes clusters of them."""

    @staticmethod
    def separate(settings: Mapping[str, str], names: Sequence[str]) -> Cluster:
        directory = Path(tempfile.mkdtemp(prefix="fluffle-rabbitmq-"))
        (epmd_port,) = _free_ports(1)
        epmd = subprocess.Popen(["epmd", "-port", str(epmd_port)], env={"PATH": os.environ["PATH"]})

        def close() -> None:
            epmd.terminate()
            _wait_or_kill(epmd)
            shutil.rmtree(directory, ignore_errors=True)

        time.sleep(0.3)  # epmd says nothing when it listens
        cookie = secrets.token_hex(8)
        cluster = Cluster([RabbitNode(name, directory, settings, epmd_port, cookie) for name in names], close)
        for node in cluster.nodes:
            node.await_ready()
        return cluster

    @staticmethod
    def form(settings: Mapping[str, str], names: Sequence[str]) -> Cluster:
        cluster = RabbitCluster.separate(settings, names)
        for node in cluster.nodes[1:]:
            assert isinstance(node, RabbitNode)
            node.join(cluster[0].name)
        cluster.await_members()
        return cluster
