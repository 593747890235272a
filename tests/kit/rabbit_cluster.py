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
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from tests.kit.patience import patience
from tests.kit.ports import free_ports
from tests.kit.rabbit_server import (
    RABBITMQ_SERVER,
    START_TIMEOUT_S,
    RabbitAdmin,
    _term,
    _wait_or_kill,
    prepare,
)
from tests.kit.server_cluster import NO_REPLICAS, Cluster, Ctl, Replicas

RABBITMQ_CTL: Final = "/usr/lib/rabbitmq/bin/rabbitmqctl"
"""Not /usr/sbin/rabbitmqctl: Debian's wrapper wants to be root or rabbitmq."""


class RabbitNode:
    """A node of a RabbitMQ cluster. It implements `ClusterNode`.

    plugins: enabled ones; None: without management, too, as it starts sooner then.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: Mapping[str, str],
        epmd_port: int,
        cookie: str,
        plugins: Sequence[str] | None = None,
    ) -> None:
        self.name = f"{name}@localhost"
        self.host = "127.0.0.1"
        self.port, self._dist_port, http_port, prometheus_port = free_ports(4)
        self.management_url = "" if plugins is None else f"http://{self.host}:{http_port}"
        self._directory = directory / name
        self._directory.mkdir()
        self._cookie = cookie
        self._environment = prepare(
            self._directory,
            self.name,
            cookie,
            (self.port, epmd_port, self._dist_port),
            settings,
            None if plugins is None else (http_port, prometheus_port),
            plugins or (),
        )
        self._beam = 0
        self.admin = RabbitAdmin(self.evaluate)
        self.launch()

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
        deadline = time.monotonic() + START_TIMEOUT_S * patience()
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
                # It does not answer, as it is starting: the Erlang machine is a child of the script.
                for child in psutil.Process(self._process.pid).children(recursive=True):
                    child.kill()
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
        """Join a cluster, as `stop_app`, `join_cluster` and `start_app` do."""
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

    def replicas(self, queue: str, vhost: str = "/") -> Replicas:
        value = self.evaluate(
            f"case {_lookup(queue, vhost)} of {{ok, Q}} ->"
            " Up = rabbit_nodes:all_running(), N = fun(L) -> [node(P) || P <- L, lists:member(node(P), Up)] end,"
            " M = case amqqueue:get_state(Q) of live -> N([amqqueue:get_pid(Q)]); _ -> [] end,"
            " {M, N(amqqueue:get_slave_pids(Q)), N(amqqueue:get_sync_slave_pids(Q))};"
            " _ -> none end"
        )
        if value == "none":
            return NO_REPLICAS
        master, mirrors, synced = re.findall(r"\[([^\]]*)\]", value)
        return Replicas(master.strip("'"), _names(mirrors), _names(synced))

    def sync(self, queue: str) -> None:
        self._of_queue("sync_mirrors", queue)

    def cancel_sync(self, queue: str) -> None:
        self._of_queue("cancel_sync_mirrors", queue)

    def _of_queue(self, function: str, queue: str) -> None:
        value = self.evaluate(
            f"{{ok, Q}} = {_lookup(queue, '/')}, rabbit_amqqueue:{function}(amqqueue:get_pid(Q))"
        )
        if not value.startswith(("ok", "{ok,")):
            raise RuntimeError(f"{function}({queue}): {value}")

    def rebalance(self) -> None:
        value = self.evaluate('rabbit_amqqueue:rebalance(all, ".*", ".*")')
        if not value.startswith("{ok,"):
            raise RuntimeError(value)

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


def _lookup(queue: str, vhost: str) -> str:
    return f"rabbit_amqqueue:lookup(rabbit_misc:r({_term(vhost)}, queue, {_term(queue)}))"


def _names(listed: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+@localhost", listed))


def _cut(cluster: Cluster, pairs: Sequence[tuple[str, str]]) -> None:
    """Each is told a wrong cookie of the other, so that they don't connect again, and disconnects."""
    for one, other in pairs:
        for here, there in ((one, other), (other, one)):
            node = cluster.node(here)
            assert isinstance(node, RabbitNode)
            node.evaluate(f"erlang:set_cookie('{there}', cut_{here[:2]})")
    for one, other in pairs:
        node = cluster.node(one)
        assert isinstance(node, RabbitNode)
        node.evaluate(f"erlang:disconnect_node('{other}')")


def _mend(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert isinstance(node, RabbitNode)
        for other in cluster.nodes:
            node.evaluate(f"erlang:set_cookie('{other.name}', erlang:get_cookie())")


class RabbitCluster:
    """Makes clusters of RabbitMQ nodes."""

    @staticmethod
    def separate(
        settings: Mapping[str, str], names: Sequence[str], plugins: Sequence[str] | None = None
    ) -> Cluster:
        directory = Path(tempfile.mkdtemp(prefix="fluffle-rabbitmq-"))
        (epmd_port,) = free_ports(1)
        epmd = subprocess.Popen(["epmd", "-port", str(epmd_port)], env={"PATH": os.environ["PATH"]})

        def close() -> None:
            epmd.terminate()
            _wait_or_kill(epmd)
            shutil.rmtree(directory, ignore_errors=True)

        time.sleep(0.3)  # epmd says nothing when it listens
        cookie = secrets.token_hex(8)
        cluster = Cluster(
            [RabbitNode(name, directory, settings, epmd_port, cookie, plugins) for name in names], close
        )
        try:
            for node in cluster.nodes:
                node.await_ready()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @staticmethod
    def form(
        settings: Mapping[str, str],
        names: Sequence[str],
        *,
        can_be_cut: bool = False,
        plugins: Sequence[str] | None = None,
    ) -> Cluster:
        cluster = RabbitCluster.separate(settings, names, plugins)
        cluster.use_network(partial(_cut, cluster), partial(_mend, cluster))
        try:
            for node in cluster.nodes[1:]:
                assert isinstance(node, RabbitNode)
                node.join(cluster[0].name)
            cluster.await_members()
        except BaseException:
            cluster.stop()
            raise
        return cluster
