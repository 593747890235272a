"""Fluffle in a process of its own, which can be killed and started again, and its operator.

The process runs a `FluffleServer` and does what its standard input says, a call of `Admin` a line; each gets a
line back. So the operator's way into the node is the one that all tests use, and the node has no door for tests.

    python -m tests.conformance.fluffle_process DIRECTORY PORT SETTINGS
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tests.conformance.fluffle_server import FluffleServer

if TYPE_CHECKING:
    from tests.conformance.servers import Admin

ROOT: Final = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S: Final = 30.0
STOP: Final = "stop"


class FluffleProcess:
    """A node in a directory that goes away with it. Implements `RestartableServer`.

    parent: where that directory is made, if not among the temporary ones.
    """

    def __init__(self, settings: Mapping[str, str], parent: Path | None = None) -> None:
        self._settings = settings
        self._directory = Path(tempfile.mkdtemp(prefix="fluffle-node-", dir=parent))
        self.host = "127.0.0.1"
        self.port = 0
        self.management_url = self.prometheus_url = ""
        self.boot()

    @property
    def admin(self) -> "Admin":
        return cast("Admin", _RemoteAdmin(self._ask))

    def boot(self) -> None:
        arguments = [str(self._directory), str(self.port), json.dumps(dict(self._settings))]
        with open(self._directory / "stderr", "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.port = self._answer()

    def halt(self) -> None:
        self._ask(STOP)
        self._process.wait(STOP_TIMEOUT_S)

    def crash(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.halt()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ask(self, call: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([call, arguments, named or {}]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the node's process ended:\n{(self._directory / 'stderr').read_text()}")
        answer = json.loads(line)
        if "refused" in answer:
            raise RuntimeError(answer["refused"])
        return answer["result"]


class _RemoteAdmin:
    """`Admin`, each call sent to the process."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **named: self._ask(name, arguments, named)


def main(directory: str, port: str, settings: str) -> None:
    """Run a node until standard input says stop or ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # so that nothing else gets between the answers

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    server = FluffleServer(json.loads(settings), Path(directory), int(port))
    answer({"result": server.port})
    for line in sys.stdin:
        name, arguments, named = json.loads(line)
        if name == STOP:
            break
        try:
            answer({"result": getattr(server.admin, name)(*arguments, **named)})
        except RuntimeError as error:
            answer({"refused": str(error)})
    server.stop()
    answer({"result": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
