"""The journal of a plan on the disk, and the files beside it.

In one directory, for each plan, by the first 16 digits of its id:

    plan.DIGITS.json      the plan itself, so that `resume` and `rollback` need no more than its id
    plan.DIGITS.log       the journal: a line of JSON for each transition, synced before the transition is acted on
    plan.DIGITS.control   the operator's order to the process that carries it out: pause, resume, abort

The journal is locked as long as a process writes it. A line that a crash tore, always the last, is cut off.
Source: spark §3.4.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from spark_ops.applying.history import History, JournalDamaged, Record, history

DIGITS: Final = 16
PREFIX: Final = "sha256:"
BYTES_MAX: Final = 1 << 30

Order = Literal["pause", "resume", "abort"]


class JournalBusy(Exception):
    """Another process of this machine carries out the plan."""


class NoSuchPlan(Exception):
    """No plan, or more than one, has that id; the error's text is one line."""


def default_directory(environment: Mapping[str, str]) -> Path:
    """Return SPARK_OPS_STATE, else `spark-ops` in the user's directory for programs' state."""
    if given := environment.get("SPARK_OPS_STATE"):
        return Path(given)
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "spark-ops"


class Place:
    """The paths of one plan's files."""

    def __init__(self, directory: Path, plan_id: str) -> None:
        stem = f"plan.{plan_id.removeprefix(PREFIX)[:DIGITS]}"
        self.directory = directory
        self.plan = directory / f"{stem}.json"
        self.journal = directory / f"{stem}.log"
        self.control = directory / f"{stem}.control"


def find(directory: Path, id_: str) -> Place:
    """Return the place of a plan that was begun, by the first digits of its id. Raises: NoSuchPlan."""
    digits = id_.removeprefix(PREFIX).lower()
    if len(digits) < 4 or not set(digits) <= set("0123456789abcdef"):
        raise NoSuchPlan(f"{id_[:80]!r} is no id of a plan: give its first 8 digits, or its file")
    found = sorted(directory.glob(f"plan.{digits[:DIGITS]}*.log"))
    if len(found) != 1:
        how = "no plan" if not found else "more than one plan"
        raise NoSuchPlan(f"{how} in {directory} has an id that begins with {digits[:DIGITS]}")
    return Place(directory, found[0].name.split(".")[1])


def read(path: Path) -> History:
    """Return the history in a journal; it is empty without a file. Raises: JournalDamaged; OSError."""
    return history(_records(_whole_lines(path)[0]))


def _whole_lines(path: Path) -> tuple[bytes, int]:
    """Return all lines that end with a line feed, and their number of octets."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b"", 0
    if len(data) > BYTES_MAX:
        raise JournalDamaged(f"it has more than {BYTES_MAX >> 20} MiB")
    end = data.rfind(b"\n") + 1
    return data[:end], end


def _records(data: bytes) -> Iterable[Record]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            raise JournalDamaged(f"line {number} is no JSON") from None
        if not isinstance(record, dict):
            raise JournalDamaged(f"line {number} is no record")
        yield record


class Journal:
    """The journal of one plan, open for writing by this process alone.   past: its history when it was opened."""

    def __init__(self, path: Path) -> None:
        """Open the journal, and create it if it is missing. Raises: JournalBusy; JournalDamaged; OSError."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalBusy from None
            data, end = _whole_lines(path)
            self.past = history(_records(data))
            os.ftruncate(self._file, end)
            os.lseek(self._file, 0, os.SEEK_END)
            if is_new:
                _sync_directory(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def write(self, records: Iterable[Record]) -> None:
        """Append records; they are on the disk when this returns. Raises: OSError."""
        data = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode()
        if not data:
            return
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._file)


def is_busy(path: Path) -> bool:
    """True if a process of this machine writes this journal. Raises: OSError."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def keep(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by the user only. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def order(path: Path, what: Order) -> None:
    """Order the process that carries out a plan to do something.   path: of the control file. Raises: OSError."""
    keep(path, json.dumps({"order": what}).encode())


def take_order(path: Path) -> Order | None:
    """Return and remove the operator's order; None if there is no valid one. Raises: OSError."""
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return None
    try:
        document: Any = json.loads(data)
    except ValueError:
        return None
    what = document.get("order") if isinstance(document, dict) else None
    return cast(Order, what) if what in get_args(Order) else None
