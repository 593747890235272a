"""`fluffle start` with an operator on its standard input, as long as `fluffle ctl` cannot set a policy.

The process is the command's own; the agent that it makes is remembered, so that calls of `Admin`, one a line, are
done in its event loop. Each gets a line back on standard output; what the command prints goes to standard error.

    python -m tests.kit.operated_node --name N --data DIR …
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from node.statistics.queue_facts import mirrors_of
from tests.kit.fluffle_server import FluffleAdmin

CALL_TIMEOUT_S: Final = 30.0


class Operator:
    """Carries out the calls from standard input in the node's event loop."""

    def __init__(self) -> None:
        self._agent: Any = None
        self._loop: Any = None

    def watch(self) -> None:
        """Remember the agent that the command makes."""
        import asyncio

        from node.process import agent as module

        operator = self

        class WatchedAgent(module.Agent):
            async def start(self, *arguments: Any, **options: Any) -> bool:
                operator._agent, operator._loop = self, asyncio.get_running_loop()
                return await super().start(*arguments, **options)

        module.Agent = WatchedAgent  # type: ignore[misc]

    def serve(self, answers: Any) -> None:
        """Answer one call after the other. When standard input ends, the tests have: so does the node."""
        for line in sys.stdin:
            try:
                answer = {"result": self._do(*json.loads(line))}
            except Exception as error:  # noqa: BLE001 - whatever it is, the test is to see it
                answer = {"refused": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _do(self, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if name in ("home", "homes", "running", "replicas"):
            read: Callable[..., Any] = getattr(self, "_" + name)
            return self._call(lambda future: future.set_result(read(*arguments)))
        if self._agent is None or self._agent.node is None:
            raise RuntimeError("the app does not run")
        return getattr(FluffleAdmin(self._agent.node, self._call), name)(*arguments, **named)

    def _call(self, action: Callable[[Future[Any]], None]) -> Any:
        future: Future[Any] = Future()

        def guarded() -> None:
            try:
                action(future)
            except Exception as error:  # noqa: BLE001 - handed on to the caller
                future.set_exception(error)

        if self._loop is None:
            raise RuntimeError("the node has not started")
        self._loop.call_soon_threadsafe(guarded)
        return future.result(CALL_TIMEOUT_S)

    # In the loop's thread.

    def _home(self, queue: str, vhost: str) -> str:
        record = self._agent.node.broker.catalogue.queue(vhost, queue)
        return "" if record is None else record.home

    def _homes(self) -> list[str]:
        catalogue = self._agent.node.broker.catalogue
        return [queue.home for vhost in catalogue.vhosts() for queue in catalogue.queues(vhost.name)]

    def _replicas(self, queue: str, vhost: str) -> tuple[str, list[str], list[str]]:
        """Return the view that the node acts by: the catalogue has a new one up to a turn earlier."""
        live = self._agent.node.broker.vhosts[vhost].queues.get(queue)
        record = None if live is None else live.record
        if record is None or record.view is None:
            return ("" if record is None else record.home), [], []
        mirrors = mirrors_of(record.view)
        synced = [member.node for member in mirrors if member.id in record.view.synced]
        return record.view.master_node or "", [member.node for member in mirrors], synced

    def _running(self) -> list[str]:
        if self._agent.node is None or not self._agent.listeners:
            return []
        return [member.name for member in self._agent.node.broker.catalogue.members.values() if member.is_up]


def main(arguments: list[str]) -> int:
    answers = sys.stdout
    sys.stdout = sys.stderr  # so that nothing else gets between the answers
    operator = Operator()
    operator.watch()
    threading.Thread(target=operator.serve, args=(answers,), name="operator", daemon=True).start()
    from node.cli.main import main as fluffle

    if segment_s := os.environ.get("FLUFFLE_TEST_SEGMENT_S"):
        from node.telemetry import segments

        segments.SEGMENT_S = float(segment_s)  # type: ignore[misc]
    return fluffle(["start", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
