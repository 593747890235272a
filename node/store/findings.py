"""Findings about damage in a store, and safe copies of the damaged bytes.

Bytes are not thrown away because they can no longer be read: before a file is rewritten without
a bad stretch, or removed, the stretch is copied to `corrupt/`, under the path that it had. A copy that is there
is never overwritten; the next copy gets `.1`, `.2` behind its name.
Source: docs/storage.md, "When something is damaged".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from node.store.directory import CORRUPT
from node.store.disk import TO_THE_END, Append, Disk, MakeDir, Read, Rename, Step, Sync, SyncDir

WHOLE_FILE: Final = -1
"""The length of a finding that is about all of the file."""


class Damage(Enum):
    """The kind of a finding."""

    TORN = "torn"
    """The file ends inside a record: a crash or a power loss leaves this of a write that was not finished."""
    CORRUPT = "corrupt"
    """Bytes differ from what was written."""
    MISSING = "missing"
    """Something refers to bytes that are not there."""
    UNKNOWN = "unknown"
    """The owner of something is not known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A damage in a file of the store.

    path: of the file, relative to the data directory.   offset, length: of the bad bytes (`WHOLE_FILE`: all;
        0: it is about what a good record says).
    text: what it is and what it means, for the operator.
    kept_as: the path of the copy; "": there is none.
    """

    damage: Damage
    path: str
    offset: int
    length: int
    text: str
    kept_as: str = ""

    def __str__(self) -> str:
        if self.length == WHOLE_FILE:
            place = self.path
        else:
            place = f"{self.path}, offset {self.offset}"
            if self.length:
                place += f", {self.length:,} bytes"
        kept = f" (kept as {self.kept_as})" if self.kept_as else ""
        return f"{place}: {self.text}{kept}"


class Isolation:
    """Gathers findings, and keeps copies of the damaged bytes.

    is_dry: only look: nothing is written.
    """

    def __init__(self, disk: Disk, *, is_dry: bool) -> None:
        self.findings: list[Finding] = []
        self.is_dry = is_dry
        self._disk = disk

    def note(self, finding: Finding) -> None:
        """Report a finding that needs no copy."""
        self.findings.append(finding)

    def keep(self, findings: Sequence[Finding], data: bytes) -> None:
        """Report bad stretches of one file, and make safe copies of them, joined in one.

        data: the whole file. Zeros are reported, and not copied.
        """
        parts = []
        for finding in findings:
            stop = len(data) if finding.length == WHOLE_FILE else finding.offset + finding.length
            parts.append(data[finding.offset : stop])
        if not findings or self.is_dry or not any(part.strip(b"\0") for part in parts):
            self.findings += findings
            return
        content = b"".join(parts)
        path, is_there = self._place_for(findings[0].path, content)
        if not is_there:
            directory, steps = self._directory_of(path)
            self._disk.run([*steps, Append(path, [content]), Sync(path), SyncDir(directory)])
        self.findings += [replace(finding, kept_as=path) for finding in findings]

    def move(self, finding: Finding) -> None:
        """Report a file or directory, and move it aside as it is."""
        if not self.is_dry:
            path = self._free_path(finding.path)
            directory, steps = self._directory_of(path)
            old_directory = finding.path.rpartition("/")[0]
            self._disk.run([*steps, Rename(finding.path, path), SyncDir(directory), SyncDir(old_directory)])
            finding = replace(finding, kept_as=path)
        self.findings.append(finding)

    def _place_for(self, path: str, content: bytes) -> tuple[str, bool]:
        """Return a free path in `corrupt/`; or the one that has this very content, and True.

        A recovery that was cut short may have left that copy.
        """
        for place in self._places(path):
            if self._disk.size(place) == len(content) and self._disk.run([Read(place, 0, TO_THE_END)]) == [
                content
            ]:
                return place, True
        return self._free_path(path), False

    def _places(self, path: str) -> list[str]:
        """Return the paths of the existing copies of a file."""
        directory, _, name = f"{CORRUPT}/{path}".rpartition("/")
        stems = ((each, each.removeprefix(name).removeprefix(".")) for each in self._disk.names(directory))
        return [
            f"{directory}/{each}"
            for each, number in stems
            if each == name or (each.startswith(f"{name}.") and number.isdecimal())
        ]

    def _free_path(self, path: str) -> str:
        directory, _, name = f"{CORRUPT}/{path}".rpartition("/")
        taken = set(self._disk.names(directory))
        free, number = name, 0
        while free in taken:
            number += 1
            free = f"{name}.{number}"
        return f"{directory}/{free}"

    def _directory_of(self, path: str) -> tuple[str, list[Step]]:
        """Return the directory of a path, and steps that make it, safely."""
        directory = path.rpartition("/")[0]
        parts = directory.split("/")
        above = ["/".join(parts[:depth]) for depth in range(len(parts))]
        return directory, [MakeDir(directory), *map(SyncDir, above)]
