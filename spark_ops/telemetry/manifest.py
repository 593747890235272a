"""Which files of an hour count: `_manifest.json` in the hour's directory, and what follows from it.

An hour without a manifest is all of its files. `compact` writes merged files, then the manifest in one rename, and
removes what it replaced some time later, so that readers which have begun are not disturbed. Files that come after
that (late rows) are in no manifest and count. So, of all files that are there, those count that are neither replaced
nor merged files that the manifest does not know (left by a `compact` that did not end).
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from spark_ops.telemetry.layout import MERGED_PREFIX, existing_hours, hour_directory

NAME: Final = "_manifest.json"
FORMAT: Final = "spark-ops-manifest/1"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Paths are relative to the hour's directory.   rows: of the merged files together."""

    merged: tuple[str, ...] = ()
    replaced: frozenset[str] = frozenset()
    rows: int = 0


class ManifestError(Exception):
    """A manifest that nobody can make sense of; its text is one line."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename, fsync of the directory. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names in a directory survive a power loss. Raises: OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(directory: Path) -> Manifest:
    """The manifest of an hour; an empty one if there is none. Raises: ManifestError, OSError."""
    path = directory / NAME
    try:
        document: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Manifest()
    except ValueError as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ManifestError(f"{path} is not a manifest of the format {FORMAT}")
    rows = document.get("rows")
    if not isinstance(rows, int):
        raise ManifestError(f"{path} lacks rows")
    return Manifest(_names(document, "merged", path), frozenset(_names(document, "replaced", path)), rows)


def _names(document: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    names = document.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManifestError(f"{path} lacks {key}")
    return tuple(names)


def write(directory: Path, manifest: Manifest) -> None:
    """Switch an hour to what a manifest says. Raises: OSError."""
    document = {
        "format": FORMAT,
        "merged": list(manifest.merged),
        "replaced": sorted(manifest.replaced),
        "rows": manifest.rows,
    }
    write_atomically(directory / NAME, json.dumps(document, indent=1).encode())


def live(files: Iterable[str], manifest: Manifest) -> list[str]:
    """Of the files that are there those that count, in order. Paths relative to the hour's directory."""
    return sorted(
        file
        for file in files
        if file not in manifest.replaced
        and (file in manifest.merged or not file.rpartition("/")[2].startswith(MERGED_PREFIX))
    )


def files_of_hour(directory: Path) -> list[str]:
    """All visible Parquet files of an hour, relative to its directory, in order; none if there is no directory."""
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*.parquet")
        if not path.name.startswith((".", "_"))
    )


def live_files_of_hour(directory: Path) -> list[Path]:
    """The files of an hour that count, in order. Raises: ManifestError, OSError."""
    return [directory / name for name in live(files_of_hour(directory), read(directory))]


def live_files(
    root: Path, kind: str, *, since: datetime | None = None, until: datetime | None = None
) -> list[Path]:
    """The files that have a kind's rows of `since` ≤ hour < `until` (None: no limit), in order.

    `since` is taken down to its hour. Raises: ManifestError, OSError.
    """
    found: list[Path] = []
    for hour in existing_hours(root, kind):
        if (since is not None and hour + timedelta(hours=1) <= since) or (
            until is not None and hour >= until
        ):
            continue
        found.extend(live_files_of_hour(hour_directory(root, kind, hour)))
    return found
