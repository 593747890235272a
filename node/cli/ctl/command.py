"""What a command of `fluffle ctl` is: a row of `node.cli.ctl.commands.COMMANDS`."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from node.cli.ctl.arguments import Line
from node.cli.ctl.formats import Done, Outcome

EX_USAGE: Final = 64
EX_DATAERR: Final = 65
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_TEMPFAIL: Final = 75

LONG_TIMEOUT_S: Final = 300.0
"""For what RabbitMQ waits without an end, or five minutes."""
TIMEOUT_S: Final = 60.0


CTL: Final = frozenset({"ctl"})
DIAGNOSTICS: Final = frozenset({"diagnostics"})
BOTH: Final = CTL | DIAGNOSTICS
QUEUES: Final = frozenset({"queues"})
UPGRADE: Final = frozenset({"upgrade"})
PLUGINS: Final = frozenset({"plugins"})


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


class Refused(Exception):
    """The command line makes no sense: `text` says why, and `exit_code` which kind of nonsense it is."""

    def __init__(self, text: str, exit_code: int = EX_USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Failed(Exception):
    """It could not be done, or a check failed.

    text: what stands on standard error, to the letter.
    value: what stands there with a JSON formatter; None: the text.
    """

    def __init__(
        self, exit_code: int, text: str, value: Mapping[str, Any] | None = None, *, has_title: bool = True
    ) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = f"Error:\n{text}" if has_title else text
        self.value = value


class NotHealthy(Failed):
    """A check failed, or there is no such thing; the text says how. Exit code 69."""

    def __init__(self, text: str, value: Mapping[str, Any] | None = None, *, has_title: bool = True) -> None:
        super().__init__(EX_UNAVAILABLE, text, value, has_title=has_title)


class Session(Protocol):
    """What a command that does more than one question has at hand."""

    environ: Mapping[str, str]

    @property
    def data_dir(self) -> str:
        """Where the node that is meant keeps its data, whether it runs or not."""

    @property
    def is_talking(self) -> bool:
        """Whether anything but the result may be printed."""

    @property
    def formatter(self) -> str:
        """How the result is printed."""

    def ask(
        self, operation: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Have the node do something. Raises: ControlError.   timeout_s: unless it is the command's."""

    def say(self, text: str) -> None:
        """Print a line at once, unless only the result may be printed."""


class Call(NamedTuple):
    """One use of a command."""

    node: str
    """The node's full name."""
    words: list[str]
    """Its arguments."""
    line: Line
    timeout_s: float

    @property
    def vhost(self) -> str:
        """Which virtual host is meant."""
        return self.line.texts.get("vhost", "/")


def named(*names: str, vhost: bool = False) -> Callable[[Call], dict[str, Any]]:
    """A request with the command's words under these names, and with the virtual host that is meant."""

    def request(call: Call) -> dict[str, Any]:
        found = dict(zip(names, call.words, strict=False))
        return {"vhost": call.vhost, **found} if vhost else found

    return request


def _nothing(call: Call) -> dict[str, Any]:
    return {}


def _done(call: Call, result: Any) -> Outcome:
    return Done()


class Command(NamedTuple):
    """One command."""

    section: str
    help: str
    usage: str = ""
    """What may stand behind its name."""
    arguments: tuple[int, int | None] = (0, 0)
    """How many at least and at most; None: any number."""
    options: frozenset[str] = frozenset()
    """Its own, besides those of all commands."""
    banner: Callable[[Call], str] | None = None
    request: Callable[[Call], dict[str, Any]] = _nothing
    """The operation's arguments. Raises: Refused."""
    present: Callable[[Call, Any], Outcome] = _done
    timeout_s: float = TIMEOUT_S
    is_slow: bool = False
    """Whether the banner is printed before the answer is there."""
    formatter: str = "table"
    """Unless another one is asked for."""
    tools: frozenset[str] = CTL
    """Whose overviews have it."""
    shorts: Mapping[str, str] = {}
    """Its own options of one letter."""
    operation: str = ""
    """What the node is asked for; empty: the command's name."""
    perform: Callable[[Call, Session], Outcome] | None = None
    """In place of asking for one operation. Raises: Failed, ControlError."""
    is_local: bool = False
    """Whether it does without any node."""
    columns: frozenset[str] = frozenset()
    """What its arguments may be, if they are columns."""
