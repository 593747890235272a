"""A node in its own process, which can be started, killed, frozen, stopped and started again.

    node = NodeProcess(tmp_path)          node.start({"heartbeat": "5"})      node.kill()      node.start()
    with TemporaryNode() as node: …       a node in a directory that goes away with it

Nodes of a cluster are in `tests.kit.cluster_processes`.
"""

import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kit.forked_process import run_command
from tests.kit.server_process import ROOT, ServerProcess

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
"""A start may take this long, since the machine may be busy; only a failing test waits so long."""
CHECK_S: Final = 300.0
"""A check of a store takes at most this long. Only a failing test waits so long."""
LOG_S: Final = 10.0
POLL_S: Final = 0.005


class StartFailed(AssertionError):
    """The node ended before it was ready, or did not get ready in time."""


def copy_data(source: Path, target: Path) -> None:
    """Copy a data directory, of a node that runs or was killed too. Its control socket cannot be copied."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("control.sock"))


def enabled_plugins(directory: Path, *names: str) -> dict[str, str]:
    """Return the environment of a node that begins with plug-ins enabled.   directory: where the list is written."""
    path = directory / "plugins"
    path.write_text(f"[{','.join(names)}].")
    return {"RABBITMQ_ENABLED_PLUGINS_FILE": str(path)}


def start_command(
    name: str,
    data: Path | str,
    *,
    listen: str = "",
    peer: str = "",
    management: str = "off",
    config: Path | None = None,
    program: Sequence[str] = ("-m", "node", "start"),
) -> list[str]:
    """Return the command that runs a node.   program: what Python runs.

    listen, peer, management: HOST:PORT; what is empty is not said, and `management` only if `listen` is.
    """
    command = [sys.executable, *program, "--name", name, "--data", str(data)]
    if listen:
        command += ["--listen", listen]
    if listen and management:
        command += ["--management", management]
    if peer:
        command += ["--peer", peer]
    if config is not None:
        command += ["--config", str(config)]
    return command


class NodeProcess(ServerProcess):
    """A node that runs as `python -m node start`, repeatedly on the same data.

    directory: for its configuration and a log of each start; made and removed by the caller.
    data: of the data directory, where it isn't `directory/data`.   listen, management: HOST:PORT; port 0 is a free one.
    environment: added to what the process gets.   cwd: where it runs, which is forked in ROOT alone.
    options: at the end of its command line.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "t1",
        *,
        data: Path | None = None,
        listen: str = f"{HOST}:0",
        management: str = "off",
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, name)
        self.name = name
        self.data = data or directory / "data"
        self.host = HOST
        self.port = 0
        self.management_url = ""
        self.ready_line = ""
        self.start_s = 0.0
        """The last start took this long, until clients were accepted."""
        self.environment = dict(environment or {})
        self.options = list(options)
        self._listen, self._management, self._cwd = listen, management, cwd
        self._launched_at = 0.0

    @property
    def config_path(self) -> Path:
        """The path of the node's fluffle.conf."""
        return self.directory / f"{self._log_name}.conf"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the configuration: keys of rabbitmq.conf."""
        self.config_path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the node and wait until it accepts clients. Raises: StartFailed."""
        self.launch(settings)
        self.wait_ready()

    def launch(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the process and return at once.   settings: lines of its fluffle.conf; None: what it has."""
        if settings is not None:
            self.configure(settings)
        self._launched_at = time.monotonic()
        command = start_command(
            self.name, self.data, listen=self._listen, management=self._management, config=self._config
        )
        with self._output.open("wb") as output:
            self._fork(
                [*command, *self.options],
                {"PATH": os.environ["PATH"], **self.environment},
                cwd=self._cwd,
                stdout=output,
            )

    def wait_ready(self) -> None:
        """Wait until clients are accepted. Raises: StartFailed."""
        while "\n" not in (printed := self._output.read_text()):
            if not self.is_running and "\n" not in self._output.read_text():
                raise StartFailed(f"the node ended: {self.log_text()[-4000:]}")
            if time.monotonic() > self._launched_at + START_S:
                self.kill()
                raise StartFailed(f"not ready within {START_S} s: {self.log_text()[-4000:]}")
            time.sleep(POLL_S)
        self.start_s = time.monotonic() - self._launched_at
        self.ready_line = printed.splitlines()[0]
        # Of several listeners the first counts: the plain ones come before those with TLS.
        places = dict(reversed(re.findall(r"(amqp|http) on (\S+:\d+)", self.ready_line)))
        self.management_url = f"http://{places['http']}" if "http" in places else ""
        if "amqp" in places:
            self.host, _, port = places["amqp"].rpartition(":")
            self.port = int(port)

    @property
    def _config(self) -> Path | None:
        return self.config_path if self.config_path.exists() else None

    @property
    def _output(self) -> Path:
        return self.directory / f"{self._log_name}.out"

    def has_logged(self, text: str, times: int = 1) -> bool:
        """Return whether the log has this text so often; since a thread writes the log, wait up to LOG_S for it."""
        deadline = time.monotonic() + LOG_S
        while self.log_text().count(text) < times and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.log_text().count(text) == times

    def check_store(self) -> tuple[int, str]:
        """`fluffle store check`, while it doesn't run. Returns: the exit code and what it prints."""
        command = [sys.executable, "-m", "node", "store", "check", str(self.data)]
        done = run_command(command, {"PATH": os.environ["PATH"]}, CHECK_S)
        return done.returncode, done.stdout + done.stderr


class TemporaryNode(NodeProcess):
    """A node that is started at once, in a directory that is removed with it.

    settings: lines of its fluffle.conf.   file_limit: how many files it may have open.
    plugins: those that are enabled; empty: the default.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        listen: str = f"{HOST}:0",
        file_limit: int | None = None,
        management: str = "off",
        plugins: Sequence[str] = (),
    ) -> None:
        self._parent = tempfile.TemporaryDirectory(prefix="fluffle-node-")
        self._last_log = ""
        if plugins:
            (Path(self._parent.name) / "enabled_plugins").write_text(f"[{','.join(plugins)}].")
        super().__init__(Path(self._parent.name), listen=listen, management=management)
        try:
            self.launch(settings)
            if file_limit is not None:
                resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (file_limit, file_limit))
            self.wait_ready()
        except BaseException:
            self.kill()
            self._parent.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            assert self.stop() == 0, self.log_text()[-4000:]
        else:
            self.kill()

    def log_text(self) -> str:
        """Return the log of the node, also after its end."""
        return super().log_text() or self._last_log

    def _end(self) -> None:
        super()._end()
        self._last_log = self.log_text()
        self._parent.cleanup()
