"""The settings that a plug-in declares: their names, types and defaults, and their values from a configuration file.

A setting has the type of its default. In the file its key stands behind the prefix of its plug-in:
`plugin.NAME.KEY = VALUE`. All values are checked before the plug-in is enabled. A key whose last word begins with `$`
is one of many: any word may stand there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool
Settings: TypeAlias = Mapping[str, Value]

PREFIX: Final = "plugin"
"""The first word of the keys of plug-ins that are packages of their own."""

_BOOLEANS: Final = {"true": True, "false": False}
_NUMBER_CHARACTERS_MAX: Final = 20
"""The longest text of a number; a longer one is no sensible value."""


class SettingError(ValueError):
    """A configuration file has settings that a plug-in does not allow.   problems: a line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a plug-in.

    key: behind the plug-in's prefix.   default: its type is the setting's.   description: for operators.
    choices: the only allowed texts; empty: any.   minimum: the least allowed number.
    words: texts that are allowed in place of a number, and stay texts.
    """

    key: str
    default: Value
    description: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    words: tuple[str, ...] = ()

    @property
    def stem(self) -> str | None:
        """The key up to a last word that may be any; None: it is one key."""
        stem, dot, last = self.key.rpartition(".")
        return stem + dot if last.startswith("$") else None

    def parse(self, text: str) -> Value:
        """Return the value of a text. Raises: ValueError with what is allowed."""
        if text in self.words:
            return text
        try:
            value = self._value(text)
        except ValueError:
            raise ValueError(f"allowed: {self.allowed}") from None
        is_below = self.minimum is not None and not isinstance(value, str) and not value >= self.minimum
        if is_below or (self.choices and text not in self.choices):
            raise ValueError(f"allowed: {self.allowed}")
        return value

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return ", ".join(self.choices)
        match self.default:
            case bool():
                return "true, false"
            case int() | float():
                kind = "a whole number" if isinstance(self.default, int) else "a number"
                kind = kind if self.minimum is None else f"{kind}, at least {self.minimum:g}"
                return ", ".join([kind, *self.words])
            case _:
                return "any text"

    def _value(self, text: str) -> Value:
        match self.default:
            case bool():
                if text not in _BOOLEANS:
                    raise ValueError
                return _BOOLEANS[text]
            case int() | float() if len(text) > _NUMBER_CHARACTERS_MAX:
                raise ValueError
            case int():
                return int(text)
            case float():
                return float(text)
            case _:
                return text


def read_settings(prefix: str, declared: Iterable[Setting], given: Mapping[str, str]) -> Settings:
    """Return the values of all settings of a plug-in, by key; those of a key that is one of many as they were given.

    given: the texts of a configuration file by whole keys, those of other plug-ins among them.
    Raises: SettingError with a line for each unknown key and each value that is not allowed.
    """
    by_key = {f"{prefix}.{each.key}": each for each in declared}
    values: dict[str, Value] = {each.key: each.default for each in by_key.values() if each.stem is None}
    problems = []
    for key in sorted(key for key in given if key.startswith(f"{prefix}.")):
        setting = by_key.get(key) or _one_of_many(key, by_key)
        if setting is None:
            known = ", ".join(by_key) or "none"
            problems.append(f"{key}: there is no such setting; allowed: {known}")
            continue
        try:
            values[key.removeprefix(f"{prefix}.")] = setting.parse(given[key])
        except ValueError as error:
            problems.append(f"{key}: {given[key]!r} is not allowed; {error}")
    if problems:
        raise SettingError(problems)
    return values


def _one_of_many(key: str, by_key: Mapping[str, Setting]) -> Setting | None:
    """Return the setting whose last word is any; None: there is none for this key."""
    stem, _, last = key.rpartition(".")
    found = [
        each for whole, each in by_key.items() if each.stem is not None and whole.startswith(f"{stem}.$")
    ]
    return found[0] if found and last else None
