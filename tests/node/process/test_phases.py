"""Each operation of the control socket has its answer in each phase of a node's life, and no phase kills it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from node.agent.operations import Operations
from node.cli.ctl.command import words
from node.config.config import Address, ClusterOptions, Config, ConsoleLog, LogOptions, SeedNode
from node.io.control import ControlError
from node.process.agent import Agent

pytestmark = pytest.mark.real

NAME: Final = "t1@localhost"
ANSWER_S: Final = 30.0
"""For an answer that comes, on a machine that does other work."""

WAITS_S: Final = 0.5
"""For one that does not come."""
"""An operation that takes longer counts as one that waits."""

Phase = Callable[[Path], AbstractAsyncContextManager[Agent]]


def agent_in(directory: Path, cluster: ClusterOptions | None = None) -> Agent:
    config = Config(
        node_name=NAME,
        data_dir=str(directory / "data"),
        cluster_name=NAME,
        tcp_listeners=(Address("127.0.0.1", 0),),
        log=LogOptions(console=ConsoleLog()),
        **({} if cluster is None else {"cluster": cluster}),
    )
    return Agent(config, Operations, environ={"XDG_RUNTIME_DIR": str(directory)})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


class Gate:
    """A coroutine function that waits until it is opened, and then does what it stands before."""

    def __init__(self, behind: Callable[..., Awaitable[Any]]) -> None:
        self._behind = behind
        self._is_open = asyncio.Event()
        self.is_reached = False

    async def __call__(self, *arguments: Any) -> Any:
        self.is_reached = True
        await self._is_open.wait()
        return await self._behind(*arguments)

    def open(self) -> None:
        self._is_open.set()


@asynccontextmanager
async def started(agent: Agent) -> AsyncIterator[Agent]:
    """An agent whose start is under way, or over."""
    start = asyncio.ensure_future(agent.start())
    try:
        yield agent
    finally:
        agent.stopping.set()
        await start
        await agent.stop()


@asynccontextmanager
async def opening(directory: Path) -> AsyncIterator[Agent]:
    agent = agent_in(directory)
    gate = Gate(agent.management.start)
    agent.management.start = gate  # type: ignore[method-assign]
    async with started(agent):
        try:
            await until(lambda: gate.is_reached)
            yield agent
        finally:
            gate.open()


@asynccontextmanager
async def starting(directory: Path) -> AsyncIterator[Agent]:
    agent, gates = agent_in(directory), []
    make = agent.make_node

    def gated(cluster: Any) -> Any:
        node = make(cluster)
        gates.append(Gate(node.start))
        node.start = gates[-1]  # type: ignore[method-assign]
        return node

    agent.make_node = gated  # type: ignore[method-assign]
    async with started(agent):
        try:
            await until(lambda: gates and gates[0].is_reached)
            yield agent
        finally:
            for gate in gates:
                gate.open()


@asynccontextmanager
async def waiting(directory: Path) -> AsyncIterator[Agent]:
    """Give an agent that looks for a cluster which another node is to make and which is not there."""
    nodes = (SeedNode("t0@localhost", "127.0.0.1:1"), SeedNode(NAME, "127.0.0.1:2"))
    options = ClusterOptions(
        listen=Address("127.0.0.1", 0), formation_nodes=nodes, discovery_retry_interval_s=0.05
    )
    async with started(agent_in(directory, options)) as agent:
        await until(lambda: agent.waits_for)
        yield agent


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Agent]:
    async with started(agent_in(directory)) as agent:
        await until(lambda: agent.node is not None)
        yield agent


@asynccontextmanager
async def paused(directory: Path) -> AsyncIterator[Agent]:
    async with running(directory) as agent:
        agent.broker_supervisor.hold()
        await until(lambda: agent.node is None and not agent.broker_supervisor.is_changing)
        yield agent


@asynccontextmanager
async def stopping(directory: Path) -> AsyncIterator[Agent]:
    async with running(directory) as agent, held_end(agent):
        task = asyncio.ensure_future(agent.operations.handle("stop_app", {}, 5.0))
        await until(lambda: agent.node is None)
        yield agent
    await task


@asynccontextmanager
async def stopped(directory: Path) -> AsyncIterator[Agent]:
    async with running(directory) as agent:
        await agent.operations.handle("stop_app", {}, 5.0)
        yield agent


@asynccontextmanager
async def ending(directory: Path) -> AsyncIterator[Agent]:
    agent = agent_in(directory)
    assert await agent.start()
    async with held_end(agent):
        task = asyncio.ensure_future(agent.stop())
        await until(lambda: agent.node is None)
        yield agent
    await task


@asynccontextmanager
async def held_end(agent: Agent) -> AsyncIterator[None]:
    """The end of the broker that runs is not over before the end of this."""
    assert agent.node is not None
    gate = Gate(agent.node.stop)
    agent.node.stop = gate  # type: ignore[method-assign]
    try:
        yield
    finally:
        gate.open()


PHASES: Final[dict[str, Phase]] = {
    each.__name__: each for each in (opening, starting, waiting, running, paused, stopping, stopped, ending)
}

# --- what is answered ---

DONE = "done"
WAITS = "waits"
STARTING = "still starting"
WAITING = "waits for another node that belongs to a cluster"
PAUSED = "cut off from the others"
STOPPING = "being stopped"
ENDING = "the node is stopping"
NOT_RUNNING = "to be running on the target node. Start it with"
RUNNING = "to be stopped on the target node. Stop it with"

ORDER: Final = ("opening", "starting", "waiting", "running", "paused", "stopping", "stopped", "ending")


def row(*answers: str) -> dict[str, str]:
    return dict(zip(ORDER, answers, strict=True))


NEEDS_BROKER: Final = row(STARTING, STARTING, WAITING, DONE, PAUSED, STOPPING, NOT_RUNNING, ENDING)
NEEDS_NO_BROKER: Final = row(STARTING, STARTING, STARTING, RUNNING, RUNNING, STOPPING, DONE, ENDING)

TABLE: Final[dict[str, dict[str, str]]] = {
    "start_app": row(STARTING, WAITS, WAITS, DONE, DONE, WAITS, DONE, ENDING),
    "stop_app": row(STARTING, WAITS, DONE, DONE, DONE, WAITS, DONE, ENDING),
    "join_cluster": NEEDS_NO_BROKER,
    "reset": NEEDS_NO_BROKER,
    "force_reset": NEEDS_NO_BROKER,
    "change_cluster_node_type": NEEDS_NO_BROKER,
    "forget_cluster_node": row(STARTING, DONE, DONE, DONE, DONE, DONE, DONE, ENDING),
    "await_startup": row(WAITS, WAITS, WAITS, DONE, WAITS, WAITS, WAITS, WAITS),
    "stop": row(*[DONE] * 8),
    "drain": NEEDS_BROKER,
    "revive": NEEDS_BROKER,
    "suspend_listeners": NEEDS_BROKER,
    "resume_listeners": NEEDS_BROKER,
    "set_cluster_name": NEEDS_BROKER,
}
"""Operations that change what the node is or does, each tried on a node of its own."""

ALWAYS: Final = words(
    "ping status cluster_status list_members environment os_env command_line_arguments plugins discover_peers "
    "resolve_hostname certificates check_certificate_expiration log_tail log_stream"
)
"""Operations that need no broker; all others do."""

TEXTS: Final = words(
    "apply_to component configure default_queue_type definition description died_in exchange header limit limits "
    "link_id name node part password pattern plugin policy queue read reason user vhost write"
)
EVERYTHING: Final[dict[str, Any]] = dict.fromkeys(TEXTS, "x") | {
    "columns": [],
    "count": 1,
    "count_only": False,
    "delay_ms": 0,
    "family": "ipv4",
    "first": 1,
    "hostname": "127.0.0.1",
    "level": "info",
    "message": 1,
    "number": 1,
    "pid": "<x.1.1.0>",
    "priority": 0,
    "queue_pattern": ".*",
    "rate": 0,
    "tags": [],
    "type": "all",
    "value": "1",
    "vhost_pattern": ".*",
    "within_days": 1,
}
"""Arguments that suit most operations, whose names mean the same everywhere."""

ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "join_cluster": {"node": NAME},
    "change_cluster_node_type": {"type": "disc"},
    "close_all_connections": {"vhost": None, "reason": "x"},
    "import_definitions": {"part": "{}"},
    "set_policy": {**EVERYTHING, "definition": '{"max-length": 1}', "apply_to": "all"},
    "set_user_limits": {**EVERYTHING, "limits": "{}"},
    "set_vhost_limits": {**EVERYTHING, "limits": "{}"},
    "upload": {"part": ""},
}

ABOUT_PHASES: Final = ("this command requires", "this command is too early", ENDING)


async def answer(agent: Agent, operation: str, expected: str) -> str:
    """Return how an operation ends: done (or refused for another reason), waiting, or the text refusing the phase."""
    arguments = ARGUMENTS.get(operation, EVERYTHING)
    within_s = WAITS_S if expected == WAITS else ANSWER_S
    try:
        async with asyncio.timeout(within_s):
            await agent.operations.handle(operation, arguments, within_s)
    except TimeoutError:
        return WAITS
    except ControlError as error:
        if "the argument" in error.text:
            return error.text
        return error.text if error.text.startswith(ABOUT_PHASES) else DONE
    return DONE


def check(operation: str, phase: str, found: str, expected: str) -> None:
    is_right = found == expected if expected in (DONE, WAITS) else expected in found
    assert is_right, f"{operation} of a node that is {phase}: {found!r}, and not {expected!r}"


@pytest.mark.parametrize("phase", ORDER)
@pytest.mark.parametrize("operation", TABLE)
def test_what_changes_a_node_is_done_or_refused_by_its_phase(operation: str, phase: str) -> None:
    async def run(directory: Path) -> None:
        async with PHASES[phase](directory) as agent:
            expected = TABLE[operation][phase]
            found = await answer(agent, operation, expected)
        check(operation, phase, found, expected)

    with tempfile.TemporaryDirectory(prefix="fluffle-phases-") as path:
        asyncio.run(run(Path(path)))


@pytest.mark.parametrize("phase", ORDER)
def test_all_other_operations_are_done_or_refused_by_the_phase(phase: str) -> None:
    async def run(directory: Path) -> None:
        async with PHASES[phase](directory) as agent:
            assert set(TABLE) < agent.operations.names
            for operation in sorted(agent.operations.names - set(TABLE)):
                expected = DONE if operation in ALWAYS else NEEDS_BROKER[phase]
                check(operation, phase, await answer(agent, operation, expected), expected)

    with tempfile.TemporaryDirectory(prefix="fluffle-phases-") as path:
        asyncio.run(run(Path(path)))


def test_a_node_that_was_told_to_join_while_it_started_serves_afterwards() -> None:
    async def run(directory: Path) -> None:
        async with opening(directory) as agent:
            with pytest.raises(ControlError, match="await_startup"):
                await agent.operations.handle("join_cluster", {"node": "t2@localhost"}, ANSWER_S)

    async def serves(directory: Path) -> None:
        async with running(directory) as agent:
            assert agent.phase == "running"

    with tempfile.TemporaryDirectory(prefix="fluffle-phases-") as path:
        asyncio.run(run(Path(path)))
        asyncio.run(serves(Path(path)))
