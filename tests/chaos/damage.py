"""Damage of a node's files, while it runs or between two runs: bits that flip, folders that go, old backups."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

HEADER_BYTES: Final = 8
"""All files of the store and the Raft log have such a header: with damage there they are another program's."""


def flip(data: Path, pattern: str, random: Random) -> str:
    """Flip one bit of one of the files, the larger the likelier; not of its header.

    pattern: of names below the data directory. Returns: where, in words; empty: there is no such file.
    """
    found = sorted((path, size) for path in data.glob(pattern) if (size := _size(path)) > HEADER_BYTES)
    if not found:
        return ""
    [(path, size)] = random.choices(found, [size for _, size in found])
    at = random.randrange(HEADER_BYTES, size)
    descriptor = os.open(path, os.O_RDWR)
    try:
        [byte] = os.pread(descriptor, 1, at)
        os.pwrite(descriptor, bytes([byte ^ 1 << random.randrange(8)]), at)
    finally:
        os.close(descriptor)
    return f"a bit of {path.relative_to(data)} at {at} of {size}"


def _size(path: Path) -> int:
    """Return the size of a file that its node may just remove."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def folders_gone(data: Path, folders: Sequence[str]) -> str:
    """Remove folders of a node that does not run. Returns: which were there, in words."""
    there = [name for name in folders if (data / name).is_dir()]
    for name in there:
        shutil.rmtree(data / name)
    return f"{' '.join(there)} gone"


def emptied(data: Path) -> None:
    """Remove everything of a node that does not run; the directory stays, it may be a file system of its own."""
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
