"""RabbitMQ's command line tools are called by these names here.

    fluffle ctl …, rabbitmqctl …      fluffle diagnostics …, rabbitmq-diagnostics …      and so on

All of them share one set of commands; each command says which tools' overviews show it. Only `rabbitmq-plugins` has
commands of its own: `list`, `set`, `enable` …. Source: management §3.1, §3.2.
"""

import os
import re
import shlex
import sys
from typing import Final, NamedTuple

from node.cli.ctl.command import Command


class Tool(NamedTuple):
    """A command line tool.   name: the word after `fluffle`.   program: the beginning of its usage."""

    name: str
    program: str

    def in_its_words(self, text: str) -> str:
        """Return a text whose commands have the names under which the user called this one."""
        ctl = "fluffle ctl" if self.program.startswith("fluffle") else "rabbitmqctl"
        return _A_COMMAND.sub(f"'{ctl} ", text)


_A_COMMAND: Final = re.compile("'(?:rabbitmqctl|fluffle ctl) ")

LINKS: Final = {
    "rabbitmqctl": "ctl",
    "rabbitmq-diagnostics": "diagnostics",
    "rabbitmq-queues": "queues",
    "rabbitmq-plugins": "plugins",
    "rabbitmq-upgrade": "upgrade",
    "rabbitmq-server": "start",
}
"""RabbitMQ's executables, and the commands of `fluffle` that they stand for."""

TOOLS: Final = {name: Tool(name, f"fluffle {name}") for name in LINKS.values() if name != "start"}


def called_as(program: str) -> Tool | None:
    """Return the tool of RabbitMQ's that an executable is named after; None for `rabbitmq-server` and any other."""
    base = os.path.basename(program)
    name = LINKS.get(base)
    return None if name is None or name == "start" else Tool(name, base)


def commands_of(tool: Tool) -> dict[str, Command]:
    """Return the commands that a tool runs."""
    from node.cli.ctl.commands import COMMANDS

    if tool.name != "plugins":
        return COMMANDS
    from node.cli.ctl.plugin_commands import PLUGIN_COMMANDS

    return {**COMMANDS, **PLUGIN_COMMANDS}


# --- compat-links ---


def make_links(directory: str, program: str) -> int:
    """Make RabbitMQ's executables in a directory; return the exit code.   program: the path of this program."""
    try:
        os.makedirs(directory, exist_ok=True)
        for name, meant in LINKS.items():
            _link(os.path.join(directory, name), meant, os.path.realpath(program))
    except OSError as error:
        print(f"fluffle compat-links: {error.filename or directory}: {error.strerror}", file=sys.stderr)
        return 73
    print(f"{', '.join(LINKS)} are in {os.path.abspath(directory)}")
    return 0


def _link(path: str, meant: str, program: str) -> None:
    """Make one executable: a link to ours, or a script where ours is only a module. Raises: OSError."""
    is_ours = os.path.basename(program) == "fluffle" and os.access(program, os.X_OK)
    new = f"{path}.{os.getpid()}"
    if os.path.lexists(path) and not _is_made_here(path, program):
        raise FileExistsError(17, "there is another file of that name", path)
    if is_ours:
        os.symlink(program, new)
    else:
        with open(new, "w") as file:
            file.write(f"#!/bin/sh\n{_MARK}\n{_start_of_script(meant)}\n")
            os.fchmod(file.fileno(), 0o755)
    os.replace(new, path)


_MARK: Final = "# made by fluffle compat-links"


def _start_of_script(meant: str) -> str:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    name = next(name for name, other in LINKS.items() if other == meant)
    main = (
        f"import sys; sys.path.insert(0, {root!r}); sys.argv[0] = {name!r}; "
        "from node.cli.main import main; sys.exit(main())"
    )
    return f'exec {shlex.quote(sys.executable)} -c {shlex.quote(main)} "$@"'


def _is_made_here(path: str, program: str) -> bool:
    if os.path.islink(path):
        return os.path.basename(os.path.realpath(path)) == "fluffle" or os.path.realpath(path) == program
    try:
        with open(path) as file:
            return _MARK in file.read(1000)
    except (OSError, UnicodeDecodeError):
        return False


# --- rabbitmq-server ---


def serve(arguments: list[str]) -> int | None:
    """Start a node as a process of its own if it is to be detached; return None if this process is to become the
    node.

    RabbitMQ's own option is removed from the arguments; the others are those of `fluffle start`.
    """
    detached = [each for each in arguments if each in ("-detached", "--detached")]
    if not detached:
        return None
    import subprocess

    rest = [each for each in arguments if each not in detached]
    command = [sys.executable, "-m", "node", "start", *rest]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
    }
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=nothing, env=environ, start_new_session=True
    )
    print("Warning: PID file not written; -detached was passed.", file=sys.stderr)
    return 0
