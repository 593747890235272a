"""Management around a broker: listeners that stay while it comes and goes, statistics, questions between nodes."""

import asyncio
import base64
import json
import logging
import subprocess
import sys
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.agent.operations import Operations
from node.amqp.properties import Properties
from node.config.config import Address, ClusterOptions, ManagementConfig, StatisticsConfig, TelemetryConfig
from node.io.control import ControlError
from node.process.agent import Agent
from node.statistics.query import Query
from tests.kit.agent import config_for, directory, environ_of
from tests.kit.amqp_client import Connection
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.patience import wait_until
from tests.kit.server_process import ROOT
from tests.kit.server_thread import Place

__all__ = ["directory"]

OWN = "t1@localhost"


Do = Callable[[Coroutine[Any, Any, Any]], Any]


def serve(directory: Path, story: Callable[[Agent, str, Do], None], **settings: Any) -> None:
    """Run an agent with an HTTP listener, and the story in a thread; it has things done on the agent's loop."""
    management = ManagementConfig(listen=Address("127.0.0.1", 0), is_configured=True)
    config = replace(config_for(directory), **{"management": management, **settings})

    async def run() -> None:
        agent = Agent(config, Operations, environ=environ_of(directory))
        assert await agent.start()
        try:
            ((_, host, port),) = agent.management.listeners
            loop = asyncio.get_running_loop()

            def do(change: Coroutine[Any, Any, Any]) -> Any:
                return asyncio.run_coroutine_threadsafe(change, loop).result(10.0)

            await asyncio.to_thread(story, agent, f"http://{host}:{port}", do)
        finally:
            assert await agent.stop()

    asyncio.run(run())


def get(url: str) -> tuple[int, Any]:
    return ask("GET", url)


def ask(method: str, url: str) -> tuple[int, Any]:
    header = "Basic " + base64.b64encode(b"guest:guest").decode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method, headers={"authorization": header})
        ) as answer:
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


@pytest.mark.slow
def test_the_listener_stays_while_the_app_is_stopped(directory: Path) -> None:
    """management §1.11: a balancer is told, rather than refused."""

    def story(agent: Agent, url: str, do: Do) -> None:
        assert get(f"{url}/api/whoami") == (200, {"name": "guest", "tags": ["administrator"]})
        assert get(f"{url}/health/ready")[0] == 200
        do(agent.broker_supervisor.stop())
        assert get(f"{url}/api/whoami")[0] == 503
        assert get(f"{url}/health/ready")[0] == 503
        do(agent.broker_supervisor.start())
        assert get(f"{url}/api/whoami")[0] == 200
        assert get(f"{url}/health/ready")[0] == 200

    serve(directory, story)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [ClusterOptions(), ClusterOptions(listen=Address("127.0.0.1", 0))])
def test_nothing_is_left_of_a_broker_that_was_restarted(directory: Path, cluster: ClusterOptions) -> None:
    """With clients, whose deliveries go back, with statistics and telemetry; beside the one search at its end."""

    def story(agent: Agent, url: str, do: Do) -> None:
        async def parts() -> "list[weakref.ref[object]]":
            node = agent.broker_supervisor.node
            assert node is not None
            assert agent.telemetry is not None
            return [weakref.ref(each) for each in (node, node.broker, node.broker.storage, agent.telemetry)]

        async def restart() -> None:
            agent.broker_supervisor.restart()

        assert agent.broker_supervisor.node is not None
        client = Connection(Place(*agent.broker_supervisor.node.listeners[0]))
        channel = client.channel()
        channel.declare("q", durable=True)
        for _ in range(10):
            channel.publish("", "q", b"m", Properties(delivery_mode=2))
        channel.consume("q")
        assert channel.deliver().body == b"m"
        for path in ("overview", "connections", "channels", "queues", "nodes"):
            assert get(f"{url}/api/{path}")[0] == 200
        with no_search_for_cycles():
            former = do(parts())
            do(restart())
            wait_until(lambda: not agent.broker_supervisor.is_over, "it was stopped")
            do(agent.broker_supervisor.await_start())
            assert_gone(*former)

    serve(
        directory,
        story,
        telemetry=TelemetryConfig(is_on=True, directory=str(directory / "telemetry")),
        cluster=cluster,
    )


def send(url: str, body: object) -> int:
    """POST of JSON. Returns: the status."""
    header = "Basic " + base64.b64encode(b"guest:guest").decode()
    data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"authorization": header})) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_maintenance_mode_and_the_log_over_http(directory: Path) -> None:
    def story(agent: Agent, url: str, do: Do) -> None:
        def is_drained() -> bool:
            return bool(get(f"{url}/api/nodes/{OWN}")[1]["being_drained"])

        def texts(after: int = 0) -> tuple[list[str], int]:
            found = get(f"{url}/api/nodes/{OWN}/log?after={after}")[1]
            return [line["text"] for line in found["lines"]], found["last"]

        _, last = texts()
        assert send(f"{url}/api/nodes/{OWN}/actions", {"action": "drain"}) == 204
        wait_until(is_drained, "maintenance mode")
        wait_until(
            lambda: any("put into maintenance" in text for text in texts(last)[0]), "a line of the log"
        )
        assert get(f"{url}/health/ready")[0] == 503
        wait_until(
            lambda: send(f"{url}/api/nodes/{OWN}/actions", {"action": "revive"}) == 204, "the drain is over"
        )
        wait_until(lambda: not is_drained(), "the end of maintenance mode")
        wait_until(lambda: get(f"{url}/health/ready")[0] == 200, "clients are served")
        assert texts(texts()[1])[0] == []

    logging.getLogger().setLevel(logging.INFO)  # as a node's own log has it
    try:
        serve(directory, story)
    finally:
        logging.getLogger().setLevel(logging.WARNING)


@pytest.mark.slow
def test_the_event_loops_lag_is_told(directory: Path) -> None:
    def story(agent: Agent, url: str, do: Do) -> None:
        async def hold() -> None:
            time.sleep(0.3)

        do(hold())
        wait_until(lambda: get(f"{url}/api/nodes/{OWN}")[1]["loop_lag"] > 50, "the lag of a held loop")

        def samples() -> list[float]:
            found = get(f"{url}/api/nodes/{OWN}?node_stats_age=60&node_stats_incr=1")[1]
            return [each["sample"] for each in found["loop_lag_details"]["samples"]]

        agent.lag.held(3.5)
        assert agent.management.longest_lag_ms == 3500
        wait_until(lambda: 3500 in samples(), "what was told of a turn is the longest of an interval")
        wait_until(lambda: get(f"{url}/api/nodes/{OWN}")[1]["loop_lag"] < 3500, "the next interval")
        assert agent.management.longest_lag_ms == 3500

    serve(directory, story, statistics=StatisticsConfig(interval_s=1.0))


def run(directory: Path, story: Callable[[Agent], Any], **settings: Any) -> None:
    """Run an agent without listeners, and the story on its loop."""

    async def running() -> None:
        agent = Agent(config_for(directory, **settings), Operations, environ=environ_of(directory))
        assert await agent.start()
        try:
            await story(agent)
        finally:
            assert await agent.stop()

    asyncio.run(running())


@pytest.mark.slow
def test_rows_of_this_node_take_no_trip(directory: Path) -> None:
    async def story(agent: Agent) -> None:
        site = agent.management
        assert [each.name for each in site.members()] == [OWN]
        assert await site.rows("queues", Query()) == []
        assert await site.rows("queues", Query(), nodes=["other@host"]) == []
        with pytest.raises(ControlError, match="is not running"):
            await site.ask("other@host", "rows", {})
        with pytest.raises(ControlError, match="no question"):
            await site.ask(OWN, "nonsense", {})
        with pytest.raises(ControlError, match="no rows of 'x'"):
            await site.ask(OWN, "rows", {"kind": "x"})

    run(directory, story)


@pytest.mark.slow
def test_statistics_can_be_forgotten(directory: Path) -> None:
    """management §1.10: DELETE /reset, of all nodes or of one."""

    def story(agent: Agent, url: str, do: Do) -> None:
        before = agent.management.statistics
        assert ask("DELETE", f"{url}/api/reset") == (204, None)
        between = agent.management.statistics
        assert ask("DELETE", f"{url}/api/reset/{OWN}") == (204, None)
        assert len({id(each) for each in (before, between, agent.management.statistics)}) == 3
        assert ask("DELETE", f"{url}/api/reset/other")[0] == 404

    serve(directory, story)


@pytest.mark.slow
def test_statistics_are_sampled_only_for_those_who_may_ask(directory: Path) -> None:
    async def story(agent: Agent) -> None:
        assert not agent.management.statistics.options.is_on
        assert agent.management._sampling is None

    run(directory, story, statistics=StatisticsConfig(interval_s=0.01))


@pytest.mark.slow
def test_a_default_port_that_is_taken_is_worth_a_warning(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """management §1.0; an address that was asked for is not given up so easily."""

    def other(agent: Agent, url: str, do: Do) -> None:
        taken = Address("127.0.0.1", int(url.rpartition(":")[2]))

        async def start(is_configured: bool) -> None:
            management = ManagementConfig(listen=taken, is_configured=is_configured)
            config = replace(config_for(directory / "2"), management=management, node_name="t2@localhost")
            second = Agent(config, Operations, environ=environ_of(directory))
            try:
                assert await second.start()
                assert second.management.listeners == []
            finally:
                await second.stop()

        asyncio.run(start(False))
        assert "There is no http listener" in caplog.text
        with pytest.raises(OSError, match="address already in use"):
            asyncio.run(start(True))

    serve(directory, other)


@pytest.mark.slow
def test_without_listeners_nothing_of_the_web_server_is_imported() -> None:
    code = (
        "import sys; import node.cli.start, node.process.agent, node.agent.operations\n"
        "found = {'aiohttp', 'orjson', 'regex'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
