"""Settings of files and environment are collected and checked here, key by key, before they become a `Config`."""

from typing import Any, Protocol, TypeVar

from node.config import keys as config_keys
from node.config.file import Setting
from node.config.values import PORT, Address

Section = TypeVar("Section")


class Files(Protocol):
    """The access to the disk that loading a configuration needs."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is no such file. Raises OSError."""

    def expand(self, pattern: str) -> list[str]:
        """Return the `.conf` files in a directory, or that a shell pattern matches, in the order of their names."""

    def readable(self, path: str) -> bool:
        """Return whether the node could read the file."""

    def is_private(self, path: str) -> bool:
        """Return whether only the file's owner may read or write it. Raises OSError."""


class Given:
    """The settings of files and environment before they become a `Config`."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.families: dict[str, dict[str, Any]] = {}
        self.places: dict[str, str] = {}
        self.unused: dict[str, None] = {}
        self.problems: list[str] = []

    def take(self, setting: Setting, files: Files) -> None:
        """Check one setting and keep its value; a later one replaces an earlier one."""
        start = f"{setting.place}: {setting.key}:"
        key = config_keys.find(setting.words)
        if key is None:
            closest = config_keys.closest(setting.key)
            hint = f"; did you mean {closest}?" if closest else ""
            self.problems.append(f"{start} there is no such setting{hint}")
            return
        try:
            value = key.type.parse(setting.value)
        except ValueError:
            self.problems.append(f"{start} {setting.value!r} is not allowed; allowed: {key.type.allowed}")
            return
        if key.type.is_file and not files.readable(value):
            self.problems.append(
                f"{start} {value!r} does not exist or cannot be read; allowed: {key.type.allowed}"
            )
            return
        if not key.field:
            self.unused[setting.key] = None
            return
        self.places[key.field] = f"{setting.place}: {setting.key}"
        if "$" in key.pattern:
            prefix = key.pattern.partition("$")[0].count(".")
            self.families.setdefault(key.field, {})[".".join(setting.words[prefix:])] = value
        else:
            self.fields[key.field] = value

    def section(self, kind: type[Section], name: str, **given: Any) -> Section:
        """Return a `kind` made of the collected values; the other fields keep their defaults."""
        known = {
            field.partition(".")[2]: value
            for field, value in self.fields.items()
            if field.startswith(f"{name}.")
        }
        return kind(**(known | given))

    def numbered(self, family: str) -> tuple[Any, ...]:
        """Return the values of a list such as `auth_mechanisms.1`, in the order of the numbers, names after them."""

        def order(name: str) -> tuple[bool, int, str]:
            return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)

        values = self.families.get(family, {})
        return tuple(values[name] for name in sorted(values, key=order))

    def require(self, condition: bool, family: str, needs: str) -> None:
        """Add a problem at the place where `family` was set, unless `condition` holds."""
        if not condition:
            self.problems.append(f"{self.places.get(family, family)}: {needs}")

    def listen_address(self, option: str, text: str) -> Address | None:
        """Parse `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `PORT` of a command line, where the host may be a name.

        Returns None, and adds a problem, for any other text.
        """
        host, _, port = text.rpartition(":")
        try:
            return Address(host.removeprefix("[").removesuffix("]"), PORT.parse(port))
        except ValueError:
            self.problems.append(f"{option} {text}: not allowed; allowed: HOST:PORT with {PORT.allowed}")
            return None
