"""This module parses the syntax of `rabbitmq.conf`: lines `dotted.key = value`, `#` comments, nothing else.

Source: management §6.1 and RabbitMQ 3.10's parser (cuttlefish), compared with it line by line: a `#` starts a
comment anywhere outside single quotes, double quotes are ordinary characters, `$(VARIABLE)` is not expanded,
a dot inside a word is written `\\.`. One thing is newer than 3.10: a value wholly in single quotes loses them
and may hold a `#`. This module opens no file, and does not know the meaning of keys.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_WORD: Final = r"(?:[A-Za-z0-9_-]|\\\.)+"
_SETTING: Final = re.compile(rf"({_WORD}(?:\.{_WORD})*)\s*=\s*(.*)")
_QUOTED: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_WORD_SEPARATOR: Final = re.compile(r"(?<!\\)\.")


class ConfigError(Exception):
    """The configuration cannot be used. `problems`: a line for each thing wrong, for the operator."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Setting(NamedTuple):
    """One line of a configuration file."""

    words: tuple[str, ...]
    """The key, cut at its dots."""
    value: str
    place: str
    """The place `file:line`, for messages."""

    @property
    def key(self) -> str:
        """The key as it is written."""
        return ".".join(word.replace(".", "\\.") for word in self.words)


def parse(content: bytes, file: str) -> list[Setting]:
    """Return the settings of one file, in their order; a key may come twice.

    Raises: ConfigError that names each line which is neither a setting nor a comment nor blank.
    """
    settings: list[Setting] = []
    problems: list[str] = []
    for number, raw_line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        place = f"{file}:{number}"
        try:
            line = raw_line.decode("utf-8").strip()
        except UnicodeDecodeError:
            problems.append(f"{place}: the line is not UTF-8 text")
            continue
        if not line or line.startswith("#"):
            continue
        match = _SETTING.fullmatch(line)
        value = _value(match.group(2)) if match else None
        if match is None or value is None:
            # The line itself is not shown: it may hold a password.
            problems.append(f"{place}: not a setting; allowed: `key = value`, a `#` comment, a blank line")
            continue
        words = _WORD_SEPARATOR.split(match.group(1))
        settings.append(Setting(tuple(word.replace("\\.", ".") for word in words), value, place))
    if problems:
        raise ConfigError(problems)
    return settings


def _value(text: str) -> str | None:
    """Return the text right of the `=`; None when there is none."""
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return quoted.group(1)
    return text.partition("#")[0].strip() or None
