"""A Fluffle node in its own process, which can be killed and started again, and its operator.

The process runs a `FluffleServer` and does what its standard input says, a call of `Admin` a line; each gets a
line back. So the operator's way into the node is the one that all tests use, and the node has no door for tests.

    python -m tests.kit.fluffle_process DIRECTORY PORT SETTINGS
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.kit.fluffle_server import FluffleServer
from tests.kit.operated_process import OperatedProcess

if TYPE_CHECKING:
    from tests.kit.servers import Admin

STOP: Final = "stop"


class FluffleProcess:
    """A node in a directory that is removed with it. It implements `RestartableServer`.

    parent: where that directory is made, if not among the temporary ones.
    """

    def __init__(self, settings: Mapping[str, str], parent: Path | None = None) -> None:
        self._settings = settings
        self._directory = Path(tempfile.mkdtemp(prefix="fluffle-node-", dir=parent))
        self._process = OperatedProcess(self._directory, "node")
        self.host = "127.0.0.1"
        self.port = 0
        self.management_url = self.prometheus_url = ""
        self.boot()

    @property
    def admin(self) -> "Admin":
        return self._process.admin

    def boot(self) -> None:
        arguments = [str(self._directory), str(self.port), json.dumps(dict(self._settings))]
        self._process.launch([sys.executable, "-m", __name__, *arguments], os.environ)
        self.port = self._process.answer()

    def halt(self) -> None:
        self._process.call(STOP)
        self._process.wait()

    def crash(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        if self._process.is_running:
            self.halt()
        shutil.rmtree(self._directory, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Run a node until standard input says stop or ends. Returns: the exit code."""
    directory, port, settings = arguments
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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
