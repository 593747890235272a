"""A process that has imported all that a node needs, and forks a node whenever a test starts one.

Importing is nine tenths of what the start of a node costs: some 0.8 s of the processor, for each node of each cluster.
A forked node has its own memory, files and sockets, and a process id to be killed by, as any other process; its program
is told the same command line and the same environment, and reads and writes the files that it is given. The server
imports and does nothing else: it has no thread, no event loop and no open file that a node could share.

    python -m tests.kit.fork_server DESCRIPTOR       the descriptor is of a socket, whose other end is a `ForkServer`

The tests' side is in `tests.kit.forked_process`, with the rules that say which processes can be forked.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

PROGRAMS: Final = {
    "node": "node.cli.main",
    "tests.chaos.watched_node": "tests.chaos.watched_node",
    "tests.kit.fluffle_process": "tests.kit.fluffle_process",
    "tests.kit.operated_node": "tests.kit.operated_node",
}
"""Programs of `python -m`, each with the module that has its `main`."""
IMPORTED: Final = (
    *PROGRAMS.values(),
    "encodings.idna",
    "uvloop",
    "node.agent.operations",
    "node.app",
    "node.cli.ctl.commands",
    "node.cli.ctl.main",
    "node.cli.ports",
    "node.cli.witness",
    "node.clustering.cluster",
    "node.config.load",
    "node.management.listeners",
    "node.management.resources.metrics",
    "node.process.agent",
)
"""Nodes and `fluffle ctl` import these when they start. One that is missing costs time and nothing else."""
REQUEST_BYTES: Final = 128 * 1024
DESCRIPTORS: Final = 4
"""Standard input, output and error of the process, and where its end is told."""


class Job(NamedTuple):
    """The process that a child becomes.   program: a key of PROGRAMS."""

    program: str
    arguments: Sequence[str]
    environment: dict[str, str]
    descriptors: Sequence[int]


class Server:
    """The loop that forks and waits for what it forked."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> Job | None:
        """Serve until the tests' process has ended. Returns: in each child, what it becomes; in the server None."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._tell_end(key.fd, *key.data)
                    continue
                request, descriptors, *_ = socket.recv_fds(self._control, REQUEST_BYTES, DESCRIPTORS)
                if not request:
                    return None
                job = self._fork(Job(*json.loads(request), descriptors))
                if job is not None:
                    return job

    def _fork(self, job: Job) -> Job | None:
        pid = os.fork()
        if pid == 0:
            # Else their objects would close these descriptors some day, which are of other files then.
            self._selector.close()
            self._control.close()
            return job
        *standard, end = job.descriptors
        for descriptor in standard:
            os.close(descriptor)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, end))
        self._control.send(str(pid).encode())
        return None

    def _tell_end(self, child: int, pid: int, end: int) -> None:
        """Write the exit code, or the negative number of a signal, as `Popen.returncode` has it."""
        self._selector.unregister(child)
        os.close(child)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # the test may have forgotten the process
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


def become(job: Job) -> int:
    """Be the process that was asked for. Returns: its exit code."""
    *standard, _ = job.descriptors
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    os.closerange(len(standard), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.environ.clear()
    os.environ.update(job.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module = importlib.import_module(PROGRAMS[job.program])
    sys.argv = [str(module.__file__), *job.arguments]
    sys.orig_argv = [sys.executable, "-m", job.program, *job.arguments]
    return int(module.main(list(job.arguments)))


def main(descriptor: int) -> int:
    """Serve, or be what was forked. Returns: the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the tests, which then end
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("node.management.resources").all_routes()
    gc.collect()
    gc.freeze()  # a collection in a child would write to each page, and so copy all of them
    job = Server(socket.socket(fileno=descriptor)).serve()
    return 0 if job is None else become(job)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
