"""Operations for operators, each defined once: the rows of which the control socket and `fluffle ctl` are made.

    node/operations/users.py: rows ──┬──► node/cli/ctl: options, words and banner of a command line; its help
                                     └──► node/agent: takes the arguments ─► node/admin/users.py ─► tells the errors

A row's name is the name of the command, of the verb on the control socket, and of the function that does it: one of
the file in `node/admin` with the name of the row's own file, or a method of the agent's operations. Its arguments
are the parameters of that function. Nothing here knows a broker: the command line starts quickly.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, Literal, NamedTuple

EX_USAGE: Final = 64
EX_DATAERR: Final = 65
EX_NOUSER: Final = 67
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_TEMPFAIL: Final = 75

TIMEOUT_S: Final = 60.0
LONG_TIMEOUT_S: Final = 300.0
"""The time-out of operations for which RabbitMQ waits without an end, or five minutes."""

CTL: Final = frozenset({"ctl"})
DIAGNOSTICS: Final = frozenset({"diagnostics"})
BOTH: Final = CTL | DIAGNOSTICS
QUEUES: Final = frozenset({"queues"})
UPGRADE: Final = frozenset({"upgrade"})
PLUGINS: Final = frozenset({"plugins"})
"""RabbitMQ's tools, by what stands behind `fluffle`."""

ArgumentKind = Literal["text", "texts", "names", "number", "json", "any", "switch"]


class Argument(NamedTuple):
    """One argument of an operation.

    kind: a text; several texts; names between commas; a number, 0 or more; a text that is JSON; anything; whether a
        switch is set.
    default: without one it must be there; None leaves it away.
    """

    name: str
    kind: ArgumentKind
    is_option: bool
    is_needed: bool
    default: str | int | None = None

    @property
    def key(self) -> str:
        """The argument's name on the control socket, and the function's parameter."""
        return self.name.replace("-", "_")


@cache
def arguments(text: str) -> tuple[Argument, ...]:
    """Return the arguments of an operation as its row has them: `--vhost=/ name definition:json exchange? tags*`.

    A word is needed but for one with `?`, of which there may be none, and `*`, of which there may be any number. An
    option has its default behind `=`, or has none with `?`; else it is a switch. A kind that is no text stands
    behind `:`.
    """
    return tuple(map(_argument, text.split()))


def _argument(text: str) -> Argument:
    declared, has_default, default = text.partition("=")
    declared, _, kind = declared.partition(":")
    name, is_option = declared.removeprefix("--").rstrip("?*"), text.startswith("--")
    if declared.endswith("*"):
        return Argument(name, "texts", is_option, False)
    if is_option and not has_default and not declared.endswith("?"):
        assert not kind, text
        return Argument(name, "switch", is_option, False)
    known = None if not has_default else int(default) if default.isdecimal() else default
    return Argument(name, _KINDS[kind], is_option, not is_option and not declared.endswith("?"), known)


_KINDS: Final[Mapping[str, ArgumentKind]] = {
    "": "text",
    "names": "names",
    "number": "number",
    "json": "json",
    "any": "any",
}


class Refusal(NamedTuple):
    """The exit code and text of the command line when an operation is refused.

    text: RabbitMQ's. `{0}` is what the error names, `{user}` the argument of that name, `{node}` this node.
    """

    exit_code: int
    text: str


DEFAULT_REFUSALS: Final[Mapping[str, Refusal]] = {
    "no_such_vhost": Refusal(EX_DATAERR, "Virtual host '{0}' does not exist"),
    "no_such_user": Refusal(EX_UNAVAILABLE, '{{:no_such_user, "{0}"}}'),
}
"""The refusals of most operations. RabbitMQ's tools say the same thing in several ways."""
EXIT_CODES: Final = {"exists": EX_SOFTWARE, "refused": EX_DATAERR}
"""The exit codes by the kind of an `AdminError` that no refusal is for; `EX_UNAVAILABLE` for all others."""


class Operation(NamedTuple):
    """One operation for operators, as a row of a table."""

    name: str
    arguments: str = ""
    """The arguments in the notation of `arguments`."""
    help: str = ""
    """A sentence without a full stop. Without one it is no command, only a verb of the control socket."""
    banner: str = ""
    """The line before it is done; `{user}` is the argument of that name, `{node}` the node."""
    usage: str | None = None
    """The text behind its name in the help; None: it follows from the arguments."""
    shows: tuple[str, ...] = ()
    """The columns of its answer, if that is a table."""
    refusals: Mapping[str, Refusal] = {}
    """The refusals beside those of most operations: by the first word of an `AdminError`, or by its kind."""
    calls: str = ""
    """The name of the function, where that is another one."""
    given: Mapping[str, object] = {}
    """The function's parameters beside the arguments."""
    tools: frozenset[str] = CTL
    """The tools whose overviews list it."""
    is_slow: bool = False
    """True if the banner is printed before the answer is there."""
    timeout_s: float = TIMEOUT_S
    section: str = ""
    """The section of an overview, where that is another one than its table's."""

    @property
    def function(self) -> str:
        """The name of the function that does it."""
        return self.calls or self.name


class Table(NamedTuple):
    """The operations on one noun.   section: their section in the overview of commands."""

    section: str
    rows: tuple[Operation, ...]
