"""The directory of a migration: its plan, its journal, and the password of its shovels' user.

    plan.json       the plan, without passwords
    journal.log     a line of JSON for each step, synced; `node.migrate.history` has the records
    password        of the user `fluffle-migrate`; readable by the owner only
    lock            is locked while a command changes something

A line that a crash tore, always the last, is cut off before the next one is written.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from node.catalogue.records import Json
from node.migrate.history import History, Record, history

BYTES_MAX: Final = 1 << 30
PASSWORD_BYTES: Final = 24


class StateError(Exception):
    """The directory cannot be used; the text is one line."""


def now_text() -> str:
    """Return the time, as journals and plans have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class State:
    """A directory of a migration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plan_path = directory / "plan.json"
        self._journal_path = directory / "journal.log"
        self._password_path = directory / "password"
        self._lock_path = directory / "lock"

    # --- the plan ---

    def write_plan(self, plan: dict[str, Json]) -> None:
        """Write the plan, whole or not at all. Raises: OSError."""
        self._make()
        _write(self.plan_path, (json.dumps(plan, indent=1) + "\n").encode())

    def read_plan(self) -> dict[str, Json]:
        """Return the plan's JSON. Raises: StateError; OSError."""
        try:
            found = json.loads(self.plan_path.read_bytes())
        except FileNotFoundError:
            raise StateError(f"{self.plan_path} is missing: run `fluffle migrate plan` first") from None
        except ValueError:
            raise StateError(f"{self.plan_path} is no JSON") from None
        if not isinstance(found, dict):
            raise StateError(f"{self.plan_path} is no plan")
        return found

    # --- the journal ---

    @property
    def journal_bytes(self) -> int:
        """The size of the journal."""
        try:
            return self._journal_path.stat().st_size
        except FileNotFoundError:
            return 0

    def history(self) -> History:
        """Return what the journal says. Raises: StateError; OSError."""
        return history(self._records())

    def _records(self) -> Iterator[Record]:
        try:
            data = self._journal_path.read_bytes()
        except FileNotFoundError:
            return
        if len(data) > BYTES_MAX:
            raise StateError(f"{self._journal_path} has more than {BYTES_MAX >> 20} MiB")
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            try:
                record = json.loads(line)
            except ValueError:
                raise StateError(f"{self._journal_path}: line {number} is no JSON") from None
            if isinstance(record, dict):
                yield record

    def append(self, past: History, records: Iterable[Record]) -> None:
        """Append records, which are on the disk and in `past` when this returns. Raises: OSError."""
        stamped: list[Record] = [{"at": now_text(), **record} for record in records]
        if not stamped:
            return
        self._make()
        data = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in stamped).encode()
        file = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # other commands hold it for one append
            _cut_torn_line(file)
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        for record in stamped:
            past.take(record)

    # --- the rest ---

    def password(self) -> tuple[str, bool]:
        """Return the password of the shovels' user, and whether it was made just now. Raises: OSError."""
        try:
            found = self._password_path.read_text().strip()
        except FileNotFoundError:
            found = ""
        if found:
            return found, False
        self._make()
        found = secrets.token_urlsafe(PASSWORD_BYTES)
        _write(self._password_path, found.encode())
        return found, True

    def forget_password(self) -> None:
        """Remove the password. Raises: OSError."""
        self._password_path.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other commands from changing anything meanwhile. Raises: StateError; OSError."""
        self._make()
        file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(f"another `fluffle migrate` works on {self.directory}") from None
            yield
        finally:
            os.close(file)

    def _make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)


def _cut_torn_line(file: int) -> None:
    """Cut a line off that does not end, and go to the end of the file."""
    end = os.lseek(file, 0, os.SEEK_END)
    while end:
        begin = max(0, end - 65536)
        at = os.pread(file, end - begin, begin).rfind(b"\n")
        if at >= 0:
            end = begin + at + 1
            break
        end = begin
    os.ftruncate(file, end)
    os.lseek(file, 0, os.SEEK_END)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only. Raises: OSError."""
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
