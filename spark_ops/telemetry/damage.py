"""This module finds telemetry files with an intact footer and damaged pages, and records them below a root.

An intact footer does not prove intact pages. A job that fails in a file therefore looks for damaged files
(`is_damaged`), records them in `<root>/_damaged.json`, and starts again without them. Readers leave the recorded files
out and report them, as they do with torn files. A file that is replaced by one of another size is read again.
Source: spark §2.7.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from spark_ops.telemetry.manifest import write_atomically

NAME: Final = "_damaged.json"
FORMAT: Final = "spark-ops-damaged/1"
FILES_MAX: Final = 10_000
"""The maximal number of files in the record. The first ones by name are kept; a job that needs another one fails."""


def recorded(root: Path) -> dict[str, int]:
    """Return the sizes in bytes of recorded files by their paths relative to the root. A damaged record is empty: its
    files are found again. Raises: OSError."""
    try:
        document: Any = json.loads((root / NAME).read_bytes())
        if document["format"] != FORMAT:
            return {}
        return {str(path): int(size) for path, size in document["files"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def is_recorded(path: Path, root: Path, record: dict[str, int]) -> bool:
    """True if the record has this file, with the size that it has now."""
    size = record.get(str(path.relative_to(root))) if record else None
    if size is None:
        return False
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def record(root: Path, paths: Iterable[Path]) -> None:
    """Add files to the record and drop those that no longer exist. Raises: OSError."""
    known = {name: size for name, size in recorded(root).items() if (root / name).exists()}
    known |= {str(path.relative_to(root)): path.stat().st_size for path in paths}
    kept = dict(sorted(known.items())[:FILES_MAX])
    write_atomically(root / NAME, json.dumps({"format": FORMAT, "files": kept}, indent=1).encode())


def is_damaged(path: Path) -> bool:
    """True if not all pages of a Parquet file can be read, or a page's checksum is wrong. A missing file is not
    damaged."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except FileNotFoundError:
        return False
    except (pyarrow.ArrowException, OSError):
        return True
    return False
