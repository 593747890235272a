"""The command line of `fluffle ctl` consists of RabbitMQ's options, in any place, and words.

RabbitMQ's tools take options before and after the command, as `--name value` or `--name=value`, and refuse those
that the command does not have. Source: management §3.1, RabbitMQ.CLI.Core.Parser v3.10.8.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_GLOBAL_TEXT: Final = frozenset(
    {"node", "data", "vhost", "timeout", "formatter", "erlang-cookie", "script-name"}
)
_GLOBAL_SWITCHES: Final = frozenset(
    {"quiet", "silent", "longnames", "dry-run", "no-table-headers", "print-stacktrace", "help", "version"}
)
_GLOBAL: Final = _GLOBAL_TEXT | _GLOBAL_SWITCHES
"""Options that every command accepts, with effect or without."""
_NUMBERS: Final = frozenset({"timeout", "within", "number", "duration"})
_INTEGERS: Final = frozenset(
    {"priority", "limit", "per-connection-delay", "queue-timeout", "pid", "first", "count", "rate"}
)
_TEXT: Final = (
    _GLOBAL_TEXT
    | _NUMBERS
    | _INTEGERS
    | {"unit", "apply-to", "vhost-pattern", "queue-pattern", "description", "tags", "default-queue-type"}
    | {"user", "format", "pattern", "address", "address-family"}
    | {"reason", "died-in", "header", "value"}
)
_SWITCHES: Final = (
    _GLOBAL_SWITCHES
    | {"online", "offline", "local", "ram", "disc", "wait", "idempotent", "global", "by-source", "all"}
    | {
        "skip-if-unchanged",
        "skip-unsupported",
        "if-empty",
        "if-unused",
        "verbose",
        "minimal",
        "enabled",
        "implicitly-enabled",
    }
    | {"details", "count-only", "only-down"}
)
_SHORT: Final = {
    "p": "vhost",
    "n": "node",
    "q": "quiet",
    "s": "silent",
    "l": "longnames",
    "t": "timeout",
    "?": "help",
}
NO_SHORTS: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class Line:
    """A parsed command line."""

    words: list[str] = field(default_factory=list)
    """The command and its arguments."""
    texts: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    invalid: list[tuple[str, str]] = field(default_factory=list)
    """Options that do not exist, or have a value that is not allowed: the option as typed, and the value."""

    def is_set(self, switch: str) -> bool:
        """Return whether `--switch` was given, and not `--no-switch` after it."""
        return self.switches.get(switch, False)

    def foreign(self, allowed: Collection[str]) -> list[tuple[str, str]]:
        """Return the options that a command with these own ones does not have, as in `invalid`."""
        known = _GLOBAL.union(allowed)
        given: Mapping[str, str] = {**dict.fromkeys(self.switches, ""), **self.texts}
        return self.invalid + [(f"--{name}", value) for name, value in given.items() if name not in known]

    def in_vhost(self, vhost: str) -> "Line":
        """Return the same line for another virtual host."""
        return Line(self.words, {**self.texts, "vhost": vhost}, self.switches, self.invalid)


def parse(arguments: Sequence[str], shorts: Mapping[str, str] = NO_SHORTS) -> Line:
    """Parse a command line. Nothing is refused here: errors are in `invalid`.

    shorts: options of one letter that only the command has, and their names.
    """
    line = Line()
    letters = {**_SHORT, **shorts}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            line.words += rest
            break
        if not word.startswith("-") or word == "-" or word[1:].isdecimal():
            line.words.append(word)
            continue
        typed, has_value, value = word.partition("=")
        name = typed[2:] if typed.startswith("--") else letters.get(typed[1:], "")
        is_negated = typed.startswith("--no-") and name not in _SWITCHES
        if name in _TEXT:
            if not has_value and rest and not _is_option(rest[0]):
                has_value, value = "=", rest.pop(0)
            is_bad = (name in _NUMBERS and not _is_number(value)) or (
                name in _INTEGERS and not _is_integer(value)
            )
            if not has_value or is_bad:
                line.invalid.append((typed, value))
            else:
                line.texts[name] = value
        elif not has_value and (name.removeprefix("no-") if is_negated else name) in _SWITCHES:
            line.switches[name.removeprefix("no-") if is_negated else name] = not is_negated
        else:
            line.invalid.append((typed, value))
    return line


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and not word[1:].isdecimal()


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdecimal() and len(text) <= 12


def _is_integer(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 12
