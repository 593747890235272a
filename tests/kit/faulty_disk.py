"""A library, loaded into the node, makes its disk fail, hang or lose what was not synced, when a test says so.

`fault_shim.c` notes every change of the data directory and what was synced. After the node was killed, `lose_power`
takes back what a power loss might have taken: what stands behind the last sync of a file is cut off, zero, or torn;
names that were created, renamed or removed since the last sync of their directory are as they were before, from
some moment on.
"""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.kit.forked_process import PRELOAD, share_library

SOURCE: Final = Path(__file__).with_name("fault_shim.c")
SLOW_S: Final = 0.4
"""By so much a slow sync is longer: `SLOW_US` of the library."""
BLOCK_BYTES: Final = 4096
"""A disk writes so much at once: within a tail that was not synced each block is there or not."""


class NoCompiler(Exception):
    """The library cannot be built here."""


class FaultyDisk:
    """The faulty disk of one node.   directory: for the library and its notes.   data: the data directory.

    Give `environment` to the node. The directories must be on one file system.
    """

    def __init__(self, directory: Path, data: Path, *, takes_notes: bool = True) -> None:
        """Build the library.   takes_notes: power may be lost, else nothing is noted. Raises: NoCompiler."""
        self._directory = directory / "disk"
        self._directory.mkdir(parents=True)
        self._data = data
        self.environment: Final = {
            PRELOAD: str(_library()),
            "FAULT_DIR": str(self._directory),
            "FAULT_DATA": str(data),
            **({"FAULT_NOTES": "1"} if takes_notes else {}),
        }
        self._sizes: dict[str, int] = {}

    def fail(self, what: str, *folders: str, now: bool = True, once: bool = False) -> None:
        """From now on (or no longer) "sync", "write" or "read" fails with EIO.

        folders: of the data directory; none: all of it.   once: only the next one does.
        """
        self._trigger(f"fail-{what}", folders, now=now, once=once)

    def hang(self, what: str, *folders: str, now: bool = True) -> None:
        """From now on (or no longer) "sync" or "write" does not return.   folders: as above."""
        self._trigger(f"hang-{what}", folders, now=now)

    def slow(self, *folders: str, now: bool = True) -> None:
        """From now on (or no longer) each sync takes `SLOW_S` longer.   folders: as above."""
        self._trigger("slow-sync", folders, now=now)

    def has_failed(self, what: str) -> bool:
        """Return whether the call that was to fail once has failed."""
        return not (self._directory / f"fail-{what}").exists()

    def mend(self) -> None:
        """End all failures, hangs and delays."""
        for kind in ("fail", "hang", "slow"):
            for trigger in self._directory.glob(f"{kind}-*"):
                trigger.unlink(missing_ok=True)

    def _trigger(self, name: str, folders: Sequence[str], *, now: bool, once: bool = False) -> None:
        path = self._directory / name
        if not now:
            path.unlink(missing_ok=True)
            return
        # The node must not read half of it.
        written = self._directory / f"new-{name}"
        written.write_text("".join(f"{line}\n" for line in (*["once"] * once, *folders)))
        written.rename(path)

    def lose_power(self, random: Random) -> list[str]:
        """Damage the data of a node that was killed, as a loss of power then would have done.

        Returns: what was done, in words.
        """
        events = self._events()
        sizes, kept_sizes = _safe_sizes(events, self._sizes)
        # That the data directory itself is safe cannot be seen: its parent is not ours to watch.
        unsafe = [event for event in _unsafe(events) if event[1] != str(self._data)]
        keep = random.randint(0, len(unsafe))
        done: list[str] = []
        for event in reversed(unsafe[keep:]):
            self._undo(event)
            if event[0] == "R":
                sizes[event[1]] = sizes.pop(event[2])
            if event[0] in "UR" and event[-1] != "-":
                sizes[event[-2]] = kept_sizes[event[-1]]
            done.append("undone: " + " ".join(event))
        for path in self._files():
            synced = sizes.get(path, 0)
            if os.path.getsize(path) > synced:
                done.append(
                    f"{path}: {os.path.getsize(path)} bytes, {synced} safe, {_tear(path, synced, random)}"
                )
        self._begin_anew()
        return done

    def _begin_anew(self) -> None:
        """Count all present data as safe."""
        self._sizes = {path: os.path.getsize(path) for path in self._files()}
        for grave in self._directory.glob("grave.*"):
            grave.unlink()
        (self._directory / "events").unlink(missing_ok=True)

    def _events(self) -> list[list[str]]:
        path = self._directory / "events"
        events = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in events if Path(event[1]).is_relative_to(self._data)]

    def _files(self) -> list[str]:
        return sorted(str(path) for path in self._data.rglob("*") if path.is_file())

    def _undo(self, event: list[str]) -> None:
        match event:
            case "C", path:
                Path(path).unlink(missing_ok=True)
            case "M", path:
                shutil.rmtree(path, ignore_errors=True)
            case "X", path:
                Path(path).mkdir(parents=True, exist_ok=True)
            case "U", path, grave:
                self._dig_out(grave, path)
            case "R", old, new, grave:
                os.rename(new, old)
                self._dig_out(grave, new)
            case _:
                raise AssertionError(event)

    def _dig_out(self, grave: str, path: str) -> None:
        # Where the directory is gone for good, so is what was in it.
        if grave != "-" and os.path.isdir(os.path.dirname(path)):
            os.link(self._directory / grave, path)


@functools.cache
def _library() -> Path:
    """Return the path of the library, which is there as long as this process. Raises: NoCompiler."""
    made = tempfile.TemporaryDirectory(prefix="fluffle-disk-")
    atexit.register(made.cleanup)
    library = Path(made.name) / "shim.so"
    library.write_bytes(built(SOURCE))
    share_library(library)  # it asks for its environment each time that it is called
    return library


@functools.cache
def built(source: Path) -> bytes:
    """Return the library that a C file makes, built once. Raises: NoCompiler."""
    with tempfile.TemporaryDirectory(prefix="fluffle-shim-") as directory:
        library = Path(directory) / "shim.so"
        options = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC")
        build = ["gcc", *options, "-o", str(library), str(source), "-ldl"]
        try:
            done = subprocess.run(build, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise NoCompiler("there is no gcc") from error
        assert done.returncode == 0, done.stderr
        return library.read_bytes()


def can_build() -> bool:
    """Return whether the library can be built here."""
    try:
        built(SOURCE)
    except NoCompiler:
        return False
    return True


def _safe_sizes(events: list[list[str]], before: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the safe sizes of files by path, and those of removed or replaced files by the path of their bytes."""
    sizes, kept = dict(before), {}
    for event in events:
        match event:
            case "S", path, size:
                sizes[path] = int(size)
            case "C", path:
                sizes[path] = 0
            case "U", path, grave:
                kept[grave] = sizes.pop(path, 0)
            case "R", old, new, grave:
                kept[grave] = sizes.pop(new, 0)
                sizes[new] = sizes.pop(old, 0)
    return sizes, kept


def _unsafe(events: list[list[str]]) -> Iterator[list[str]]:
    """Return the changes of names, in order, that no later sync of a directory has made safe."""
    safe: dict[str, int] = {}
    for at, event in enumerate(events):
        if event[0] == "D":
            safe[event[1]] = at
    for at, event in enumerate(events):
        if event[0] in "CMXUR":
            directories = {os.path.dirname(path) for path in event[1:] if path.startswith("/")}
            if any(safe.get(directory, -1) < at for directory in directories):
                yield event


def _tear(path: str, synced: int, random: Random) -> str:
    """Lose all or some of the bytes after the first `synced` bytes of a file. Returns: a description."""
    how = random.choice(["kept", "cut", "cut to a part", "zeros", "blocks"])
    size = os.path.getsize(path)
    if how == "cut":
        os.truncate(path, synced)
    elif how == "cut to a part":
        os.truncate(path, random.randint(synced, size))
    elif how != "kept":
        with open(path, "r+b") as file:
            for start in range(synced - synced % BLOCK_BYTES, size, BLOCK_BYTES):
                if how == "zeros" or random.random() < 0.5:
                    file.seek(max(start, synced))
                    file.write(bytes(min(start + BLOCK_BYTES, size) - max(start, synced)))
    return how
