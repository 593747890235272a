"""This module runs an agent in the process of a test, which sends it requests over its control socket."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.agent.operations import Operations
from node.config.config import Address, Config, ConsoleLog, LogOptions
from node.io.control import ControlError, request
from node.process.agent import Agent

NAME = "t1@localhost"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fluffle-agent-") as path:
        yield Path(path)


def config_for(directory: Path, **settings: Any) -> Config:
    return Config(
        node_name=NAME,
        data_dir=str(directory / "data"),
        cluster_name=NAME,
        tcp_listeners=(Address("127.0.0.1", 0),),
        log=LogOptions(console=ConsoleLog()),
        **settings,
    )


def environ_of(directory: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(directory)}


def serve(directory: Path, asks: Callable[["Asker"], None], **settings: Any) -> Agent:
    """Run an agent, and `asks` in a thread at the same time, as the command line would.

    settings: fields of its configuration.
    """

    async def run() -> Agent:
        agent = Agent(config_for(directory, **settings), Operations, environ=environ_of(directory))
        assert await agent.start()
        try:
            await asyncio.to_thread(asks, Asker(agent))
        finally:
            assert await agent.stop()
        return agent

    return asyncio.run(run())


class Asker:
    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        assert threading.current_thread() is threading.main_thread()

    def __call__(self, operation: str, timeout_s: float = 10.0, **arguments: object) -> Any:
        return request(self.agent.config.data_dir, operation, arguments, timeout_s=timeout_s)

    def fails(self, operation: str, **arguments: object) -> tuple[int, str]:
        with pytest.raises(ControlError) as caught:
            self(operation, **arguments)
        return caught.value.exit_code, caught.value.text
