"""A process whose standard input is its operator's: a call of `Admin` a line, each of which gets a line back."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tests.kit.server_process import ServerProcess

if TYPE_CHECKING:
    from tests.kit.servers import Admin


class OperatedProcess(ServerProcess):
    """`tests.kit.fluffle_process` or `tests.kit.operated_node`."""

    def launch(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the process and return at once."""
        self._fork(command, environ, has_pipes=True)

    @property
    def admin(self) -> "Admin":
        """The interface for the operator's calls."""
        return cast("Admin", _RemoteAdmin(self.call))

    def call(self, name: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
        """Send a call to the process. Returns: its result. Raises: RuntimeError if it is refused."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps([name, arguments, named or {}]) + "\n")
        process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """Wait for the next line of the process's output. Raises: RuntimeError."""
        process = self._started()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended:\n{self.log_text()[-4000:]}")
        answer = json.loads(line)
        if "refused" in answer:
            raise RuntimeError(answer["refused"])
        return answer["result"]

    def all_log_text(self) -> str:
        """Return the logs of all starts of the process."""
        paths = [
            self.log_path.with_name(f"{self._log_name}.{start}.log") for start in range(1, self.starts + 1)
        ]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())


class _RemoteAdmin:
    """`Admin`, each call sent to the process."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **named: self._ask(name, arguments, named)
