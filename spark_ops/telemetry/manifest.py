"""The manifest of an hour (`_manifest.json` in its directory) says which of the hour's files are live.

Readers read live files only. Without a manifest all files of an hour are live. `compact` writes merged files, then
replaces the manifest by a rename, and removes the replaced files some time later, so that running readers can finish.
Files that a collector adds afterwards (late rows) are in no manifest and are live. A file is not live if the manifest
lists it as replaced, or if it is a merged file that the manifest does not list (an interrupted `compact` left it).
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
    """The contents of a manifest; paths are relative to the hour's directory.   rows: total of the merged files."""

    merged: tuple[str, ...] = ()
    replaced: frozenset[str] = frozenset()
    rows: int = 0


class ManifestError(Exception):
    """A manifest is damaged or has another format; the error's text is one line."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: temporary name, fsync, rename, fsync of the directory. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush a directory, so that its entries survive a power loss. Raises: OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(directory: Path) -> Manifest:
    """Read the manifest of an hour; without a file, return an empty one. Raises: ManifestError, OSError."""
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
    """Replace the manifest of an hour, which switches readers to its files. Raises: OSError."""
    document = {
        "format": FORMAT,
        "merged": list(manifest.merged),
        "replaced": sorted(manifest.replaced),
        "rows": manifest.rows,
    }
    write_atomically(directory / NAME, json.dumps(document, indent=1).encode())


def live(files: Iterable[str], manifest: Manifest) -> list[str]:
    """Return the live files among the files of an hour, in order. Paths are relative to the hour's directory."""
    return sorted(
        file
        for file in files
        if file not in manifest.replaced
        and (file in manifest.merged or not file.rpartition("/")[2].startswith(MERGED_PREFIX))
    )


def files_of_hour(directory: Path) -> list[str]:
    """Return all visible Parquet files of an hour, relative to its directory, in order; [] if there is no directory."""
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*.parquet")
        if not path.name.startswith((".", "_"))
    )


def live_files_of_hour(directory: Path) -> list[Path]:
    """Return the live files of an hour, in order. Raises: ManifestError, OSError."""
    return [directory / name for name in live(files_of_hour(directory), read(directory))]


def live_files(
    root: Path, kind: str, *, since: datetime | None = None, until: datetime | None = None
) -> list[Path]:
    """Return the live files of the hours of a kind that overlap [since, until), in order; None: no limit.

    Raises: ManifestError, OSError.
    """
    found: list[Path] = []
    for hour in existing_hours(root, kind):
        if (since is not None and hour + timedelta(hours=1) <= since) or (
            until is not None and hour >= until
        ):
            continue
        found.extend(live_files_of_hour(hour_directory(root, kind, hour)))
    return found
