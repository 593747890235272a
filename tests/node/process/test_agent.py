"""An agent without a cluster: the broker with a control socket around it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from node.agent.operations import Operations
from node.catalogue.replicated_log import LocalLog
from node.io.control import ControlError, find_node
from node.io.data_directory import DataDirectoryError
from node.process.agent import Agent
from tests.kit.agent import NAME, Asker, config_for, directory, environ_of, serve
from tests.kit.server_process import ROOT

__all__ = ["directory"]  # a fixture

pytestmark = pytest.mark.real


def test_it_answers_on_its_control_socket_and_is_found_by_its_name(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        assert ask("ping") == {}
        assert find_node(NAME, environ_of(directory)) == ask.agent.config.data_dir
        status = ask("status")
        assert status["is_running"] is True
        assert status["pid"] == os.getpid()
        assert status["rabbitmq_version"] == "3.10.8"
        assert [each["protocol"] for each in status["listeners"]] == ["amqp"]

    serve(directory, asks)
    assert find_node(NAME, environ_of(directory)) is None
    assert not (directory / "data" / "control.sock").exists()


def test_stop_app_leaves_the_process_and_start_app_starts_another_broker(directory: Path) -> None:
    """management §3.5: after stop_app, ping works and list_queues says that the app must run."""

    def asks(ask: Asker) -> None:
        ask("stop_app")
        ask("stop_app")
        assert ask("ping") == {}
        assert ask("status")["is_running"] is False
        code, text = ask.fails("list_queues")
        assert code == 64
        assert "requires the 'rabbit' app to be running on the target node" in text
        ask("start_app")
        ask("start_app")
        ask("await_startup")
        assert ask("status")["is_running"] is True

    serve(directory, asks)


def test_cluster_status_of_a_node_alone(directory: Path) -> None:
    """management §3.4: every key is there."""

    def asks(ask: Asker) -> None:
        status = ask("cluster_status")
        assert status["cluster_name"] == NAME
        assert status["disk_nodes"] == status["running_nodes"] == [NAME]
        assert status["ram_nodes"] == []
        assert status["maintenance_status"] == {NAME: "not under maintenance"}
        assert status["versions"][NAME]["rabbitmq_version"] == "3.10.8"
        assert status["alarms"] == []
        assert status["partitions"] == {}
        assert status["feature_flags"][5] == {"name": "quorum_queue", "state": "enabled"}
        assert [listener["purpose"] for listener in status["listeners"][NAME]] == ["AMQP 0-9-1"]

    serve(directory, asks)


def test_set_cluster_name(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        ask("set_cluster_name", name="warren")
        assert ask("cluster_status")["cluster_name"] == "warren"
        ask("stop_app")
        assert ask.fails("set_cluster_name", name="x")[0] == 64
        ask("start_app")
        assert ask("cluster_status")["cluster_name"] == "warren"

    serve(directory, asks)


def test_await_online_nodes(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        assert ask("await_online_nodes", count=1) == {}
        with pytest.raises(ControlError, match="Not enough nodes joined t1@localhost's cluster"):
            ask("await_online_nodes", timeout_s=0.5, count=2)
        assert ask.fails("await_online_nodes", count="2")[0] == 64

    serve(directory, asks)


def test_reset_needs_the_app_stopped_and_forgets_everything(directory: Path) -> None:
    """reliability §2.5: reset_removes_things, force_reset_node."""

    def asks(ask: Asker) -> None:
        for operation in ("reset", "force_reset"):
            code, text = ask.fails(operation)
            assert code == 64
            assert "requires the 'rabbit' app to be stopped" in text
            ask("set_cluster_name", name="warren")
            ask("stop_app")
            ask(operation)
            ask("start_app")
            assert ask("cluster_status")["cluster_name"] == NAME

    serve(directory, asks)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("nonsense", {}),
        ("forget_cluster_node", {}),
        ("forget_cluster_node", {"node": 7}),
        ("list_queues", {"vhost": 7}),
        ("list_queues", {"which": "some"}),
        ("await_online_nodes", {}),
        ("set_cluster_name", {"name": ""}),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    directory: Path, operation: str, arguments: dict[str, object]
) -> None:
    serve(directory, lambda ask: check_usage(ask, operation, arguments))


def check_usage(ask: Asker, operation: str, arguments: dict[str, object]) -> None:
    assert ask.fails(operation, **arguments)[0] == 64


def test_join_cluster_refuses_itself_and_a_running_app(directory: Path) -> None:
    """reliability §2.5: join_cluster_bad_operations."""

    def asks(ask: Asker) -> None:
        assert ask.fails("join_cluster", node="n2@localhost")[0] == 64
        ask("stop_app")
        code, text = ask.fails("join_cluster", node=NAME)
        assert (code, text) == (70, f"Error: cannot cluster node with itself: {NAME}")

    serve(directory, asks)


def test_stop_ends_the_process(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        assert ask("stop") == {"pid": os.getpid()}

    async def run() -> None:
        agent = Agent(config_for(directory), Operations, environ=environ_of(directory))
        await agent.start()
        await asyncio.to_thread(asks, Asker(agent))
        await asyncio.wait_for(agent.stopping.wait(), 5)
        await agent.stop()

    asyncio.run(run())


def test_a_second_agent_on_the_directory_is_refused_also_while_the_app_is_stopped(directory: Path) -> None:
    async def run() -> None:
        agent = Agent(config_for(directory), Operations, environ=environ_of(directory))
        await agent.start()
        await agent.broker_supervisor.stop()
        try:
            with pytest.raises(DataDirectoryError, match=f"in use by another node \\(pid {os.getpid()}"):
                await Agent(config_for(directory), Operations, environ=environ_of(directory)).start()
            assert find_node(NAME, environ_of(directory)) is not None
        finally:
            await agent.stop()

    asyncio.run(run())


def test_a_node_without_cluster_settings_imports_neither_links_nor_raft(directory: Path) -> None:
    code = (
        "import sys, node.process.agent, node.agent.operations; "
        "print(sorted(m for m in ('cluster.transport.transport', 'pysyncobj', 'google.protobuf') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_node_of_a_cluster_imports_no_cryptography(directory: Path) -> None:
    """PySyncObj would, for links that nodes don't use: 5 MB."""
    code = (
        "import sys, node.clustering.cluster; "
        "print('pysyncobj' in sys.modules, sorted(m for m in ('grpc', 'cryptography') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_local_log_is_what_a_broker_alone_has() -> None:
    assert LocalLog.submit.__doc__ is not None
