"""A command of `fluffle ctl` is a row of `node.cli.ctl.commands.COMMANDS`.

Most are made of the rows of `node.operations`, which describe the operation and its arguments: see `commands`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from node.cli.ctl.arguments import Line
from node.cli.ctl.formats import Done, Outcome, Table
from node.operations.operation import CTL, EX_UNAVAILABLE, EX_USAGE, TIMEOUT_S, Argument, Operation, arguments
from node.operations.operation import Table as Operations


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


class Refused(Exception):
    """The command line is invalid: `text` says why, and `exit_code` tells the kind of error."""

    def __init__(self, text: str, exit_code: int = EX_USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Failed(Exception):
    """A command failed, or a check did.

    text: printed on standard error, to the letter.
    value: printed there with a JSON formatter; None: the text.
    """

    def __init__(
        self, exit_code: int, text: str, value: Mapping[str, Any] | None = None, *, has_title: bool = True
    ) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = f"Error:\n{text}" if has_title else text
        self.value = value


class NotHealthy(Failed):
    """A check failed, or an object does not exist; the text says how. Exit code 69."""

    def __init__(self, text: str, value: Mapping[str, Any] | None = None, *, has_title: bool = True) -> None:
        super().__init__(EX_UNAVAILABLE, text, value, has_title=has_title)


class CtlSession(Protocol):
    """The means of a command that asks more than one question."""

    environ: Mapping[str, str]

    @property
    def data_dir(self) -> str:
        """The data directory of the command's node, whether the node runs or not."""

    @property
    def is_talking(self) -> bool:
        """True if anything but the result may be printed."""

    @property
    def formatter(self) -> str:
        """The name of the formatter for the result."""

    def ask(
        self, operation: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Have the node carry out an operation. Raises: ControlError.   timeout_s: None: the command's."""

    def say(self, text: str) -> None:
        """Print a line at once, unless only the result may be printed."""


class Call(NamedTuple):
    """One use of a command."""

    node: str
    """The node's full name."""
    words: list[str]
    """The command's arguments."""
    line: Line
    timeout_s: float

    @property
    def vhost(self) -> str:
        """The virtual host of the command."""
        return self.line.texts.get("vhost", "/")


def named(*names: str, vhost: bool = False) -> Callable[[Call], dict[str, Any]]:
    """Return a request with the command's words under these names, and optionally with the virtual host."""

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
    """The usage after the command's name."""
    arguments: tuple[int, int | None] = (0, 0)
    """The least and the greatest number of arguments; None: any number."""
    options: frozenset[str] = frozenset()
    """The command's own options, besides those of all commands."""
    banner: Callable[[Call], str] | None = None
    request: Callable[[Call], dict[str, Any]] = _nothing
    """Returns the operation's arguments. Raises: Refused."""
    present: Callable[[Call, Any], Outcome] = _done
    timeout_s: float = TIMEOUT_S
    is_slow: bool = False
    """True if the banner is printed before the answer is there."""
    formatter: str = "table"
    """The default formatter."""
    tools: frozenset[str] = CTL
    """The tools whose overviews list the command."""
    shorts: Mapping[str, str] = {}
    """The command's own options of one letter."""
    operation: str = ""
    """The operation of the node; empty: the command's name."""
    perform: Callable[[Call, CtlSession], Outcome] | None = None
    """The function that replaces asking for one operation. Raises: Failed, ControlError."""
    is_local: bool = False
    """True if the command needs no node."""
    columns: frozenset[str] = frozenset()
    """The allowed arguments, if they are columns."""


# --- of rows of `node.operations` ---


def commands(table: Operations, **own: Mapping[str, Any]) -> dict[str, Command]:
    """Return the commands of a table.   own: fields of `Command` that no row can have, by the command's name."""
    return {
        row.name: _command(row, table.section)._replace(**own.get(row.name, {}))
        for row in table.rows
        if row.help
    }


def _command(row: Operation, section: str) -> Command:
    taken = arguments(row.arguments)
    kinds = [each.kind for each in taken if not each.is_option]
    return Command(
        row.section or section,
        row.help,
        _usage(row, taken) if row.usage is None else row.usage,
        (sum(each.is_needed for each in taken), None if "texts" in kinds else len(kinds)),
        frozenset(each.name for each in taken if each.is_option and each.name != "vhost"),
        _banner(row.banner, taken) if row.banner else None,
        lambda call: _asked(call, taken),
        (lambda call, result: Table(row.shows, result["rows"], has_blank=True)) if row.shows else _done,
        row.timeout_s,
        row.is_slow,
        tools=row.tools,
    )


def _asked(call: Call, taken: tuple[Argument, ...]) -> dict[str, Any]:
    """Return the operation's arguments: words and options under the operation's names for them."""
    found: dict[str, Any] = {}
    words_left = list(call.words)
    for each in taken:
        if each.is_option:
            found[each.key] = call.vhost if each.name == "vhost" else _option(call.line, each)
        elif each.kind == "texts":
            found[each.key] = words_left
        elif words_left:
            found[each.key] = words_left.pop(0)
    return found


def _option(line: Line, option: Argument) -> Any:
    if option.kind == "switch":
        return line.is_set(option.name)
    text = line.texts.get(option.name)
    if option.kind == "names":
        return [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is None:
        return option.default
    return int(text) if isinstance(option.default, int) else text


def _banner(text: str, taken: tuple[Argument, ...]) -> Callable[[Call], str]:
    def banner(call: Call) -> str:
        asked = {
            key: ", ".join(value) if isinstance(value, list) else value
            for key, value in _asked(call, taken).items()
        }
        return text.format_map({"node": call.node, "vhost": call.vhost, "timeout_s": call.timeout_s, **asked})

    return banner


_SHOWN_AS: Final[Mapping[str, str]] = {"user": "username", "configure": "conf", "component": "component_name"}
"""The names of words in RabbitMQ's help, where they differ."""


def _usage(row: Operation, taken: tuple[Argument, ...]) -> str:
    options = [
        f"[--{each.name}]" if each.kind == "switch" else f"[--{each.name} <{each.name}>]"
        for each in taken
        if each.is_option
    ]
    shown = [_word(each) for each in taken if not each.is_option]
    if row.shows or _COLUMNS in shown:
        return " ".join([*options, "[--no-table-headers]", *shown, "[--timeout <timeout>]"])
    return " ".join([*options, *shown])


_COLUMNS: Final = "[<column> ...]"


def _word(word: Argument) -> str:
    if word.kind == "texts":
        return _COLUMNS if word.name == "columns" else f"<{word.name.removesuffix('s')}> [...]"
    shown = f"<{_SHOWN_AS.get(word.name, word.name)}>"
    return shown if word.is_needed else f"[{shown}]"
