"""`fluffle ctl` finds a node on this machine and sends it requests through the client's side of the control socket.

    registry: names of nodes ─► their data directories ─► DATA/control.sock ─► a request, a reply, each a line of JSON

The socket works without an AMQP user and while the broker is stopped (management §3.5). A process that may open it,
one of the node's own user, may do everything. Imports here are cheap, as each command line waits for them.
"""

import contextlib
import json
import os
import socket
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

SOCKET_NAME: Final = "control.sock"
REQUEST_MAX_BYTES: Final = 1 << 20
REPLY_MAX_BYTES: Final = 64 << 20

EX_USAGE: Final = 64
EX_DATAERR: Final = 65
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_TEMPFAIL: Final = 75

_SLACK_S: Final = 2.0
"""The time that the client waits longer than the node, so that the node's error arrives, which names the cause."""
_CONNECT_S: Final = 1.0
_READ_BYTES: Final = 1 << 16


class ControlError(Exception):
    """The node refused a request, or failed to carry it out.

    exit_code: what the command line ends with (management §3.1).   text: what stands after `Error:`.
    """

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text


def refused(text: str) -> ControlError:
    """Return the error of a request that a rule forbids. Its exit code differs from that of an unreachable node."""
    return ControlError(EX_SOFTWARE, text)


def unavailable(text: str) -> ControlError:
    """Return the error of a request that cannot be carried out now."""
    return ControlError(EX_UNAVAILABLE, text)


class ControlUnreachable(ControlError):
    """No node listens on the control socket, or it ended during the request."""

    def __init__(self, text: str) -> None:
        super().__init__(EX_UNAVAILABLE, text)


class ControlTimeout(ControlError):
    """The node did not answer in time."""

    def __init__(self, text: str) -> None:
        super().__init__(EX_TEMPFAIL, text)


def request(data_dir: str, operation: str, arguments: Mapping[str, object], *, timeout_s: float) -> Any:
    """Send a request to the node with this data directory, and return its result. Raises: ControlError."""
    line = json.dumps({"operation": operation, "arguments": dict(arguments), "timeout_s": timeout_s})
    data = line.encode() + b"\n"
    if len(data) > REQUEST_MAX_BYTES:
        raise ControlError(EX_USAGE, f"the request has {len(data)} bytes; {REQUEST_MAX_BYTES} are allowed")
    try:
        with _connected(data_dir, timeout_s + _SLACK_S) as sock:
            return _result(_asked(sock, data))
    except TimeoutError:
        raise ControlTimeout(f"the node did not answer within {timeout_s:g} s") from None


def _asked(sock: socket.socket, data: bytes) -> Any:
    try:
        sock.sendall(data)
        return _read_line(sock)
    except TimeoutError:
        raise
    except OSError as error:
        raise ControlUnreachable(f"the node ended while it was asked: {error.strerror}") from None


def _result(reply: bytes) -> Any:
    try:
        answer = json.loads(reply)
        if "error" in answer:
            raise ControlError(int(answer["error"]["exit_code"]), str(answer["error"]["text"]))
        return answer["result"]
    except (ValueError, KeyError, TypeError):
        text = "the node ended while it was asked" if not reply else "the node's answer is not understood"
        raise ControlUnreachable(text) from None


def _read_line(sock: socket.socket) -> bytes:
    pieces, size = [], 0
    while True:
        piece = sock.recv(_READ_BYTES)
        pieces.append(piece)
        size += len(piece)
        if not piece or piece.endswith(b"\n") or size > REPLY_MAX_BYTES:
            return b"".join(pieces)


@contextlib.contextmanager
def _connected(data_dir: str, timeout_s: float) -> Iterator[socket.socket]:
    """Connect to a node. Raises: ControlUnreachable, TimeoutError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            with short_path(data_dir) as path:
                sock.connect(path)
        except (TimeoutError, BlockingIOError):  # the latter: its queue of connections is full
            raise TimeoutError(f"the node on {data_dir} does not take a connection") from None
        except OSError as error:
            raise ControlUnreachable(f"no node runs on {data_dir} ({error.strerror or error})") from None
        yield sock


@contextlib.contextmanager
def short_path(data_dir: str) -> Iterator[str]:
    """Yield a path of the control socket that is valid while the context lasts. Raises: OSError.

    A socket's address has room for 107 bytes (unix(7)), and a data directory's path is often longer. So the path goes
    through an open descriptor of the directory where the system offers that.
    """
    fd = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        below = f"/proc/self/fd/{fd}"
        yield os.path.join(below if os.path.isdir(below) else data_dir, SOCKET_NAME)
    finally:
        os.close(fd)


def is_answering(data_dir: str) -> bool:
    """Return whether a process listens on the control socket. A process that hangs does."""
    try:
        with _connected(data_dir, timeout_s=_CONNECT_S):
            return True
    except TimeoutError:
        return True
    except ControlUnreachable:
        return False


# --- the registry ---


def registry_directory(environ: Mapping[str, str]) -> str:
    """Return the directory that lists this user's nodes."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        return os.path.join(runtime, "fluffle")
    return os.path.join("/tmp", f"fluffle-{os.getuid()}")


def register(name: str, data_dir: str, environ: Mapping[str, str]) -> None:
    """List a node in the registry. Raises: OSError if that cannot be used; the node is then found by --data only."""
    directory = registry_directory(environ)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if not _is_ours(directory, stat.S_ISDIR):
        raise PermissionError(f"{directory} belongs to another user, or others may write to it")
    path = _entry(directory, name, data_dir)
    _remove_stale(directory)
    fd, new = tempfile.mkstemp(dir=directory, prefix=".")
    with open(fd, "w") as file:
        file.write(os.path.abspath(data_dir) + "\n")
    os.replace(new, path)


def unregister(name: str, data_dir: str, environ: Mapping[str, str]) -> None:
    """Remove a node from the registry."""
    with contextlib.suppress(OSError):
        os.unlink(_entry(registry_directory(environ), name, data_dir))


def registered_nodes(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return names and data directories of this user's running nodes. Several may have the same name."""
    return [(name, data_dir) for _, name, data_dir in _entries(environ) if is_answering(data_dir)]


def has_entries(environ: Mapping[str, str]) -> bool:
    """Return whether any node is listed, even one that was killed."""
    return any(True for _ in _entries(environ))


def find_node(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the data directory of this user's running node of that name; None for none, or several."""
    found = [data_dir for known, data_dir in registered_nodes(environ) if known == name]
    return found[0] if len(found) == 1 else None


def _entries(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield path, name and data directory of each node in the registry."""
    directory = registry_directory(environ)
    if _is_ours(directory, stat.S_ISDIR):
        for file in sorted(os.listdir(directory)):
            path, name = os.path.join(directory, file), file.rpartition("~")[0]
            data_dir = _read_entry(path) if name and not name.startswith(".") else None
            if data_dir is not None:
                yield path, name, data_dir


def _entry(directory: str, name: str, data_dir: str) -> str:
    """Return the path of a node's entry. Raises: OSError for a name that cannot be a file's."""
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise OSError(f"{name!r} is not a node's name")
    place = zlib.crc32(os.path.abspath(data_dir).encode(errors="surrogateescape"))
    return os.path.join(directory, f"{name}~{place:08x}")


def _remove_stale(directory: str) -> None:
    """Remove killed nodes from the registry. Each node listens before it is listed."""
    for file in os.listdir(directory):
        path = os.path.join(directory, file)
        data_dir = None if file.startswith(".") else _read_entry(path)
        if data_dir is not None and not is_answering(data_dir):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _read_entry(path: str) -> str | None:
    if not _is_ours(path, stat.S_ISREG):
        return None
    try:
        with open(path) as file:
            data_dir = file.readline(_READ_BYTES).removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return data_dir if os.path.isabs(data_dir) else None


def _is_ours(path: str, is_kind: Any) -> bool:
    """Return whether a file exists, is no link, is our user's, and can be changed by our user only."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return bool(is_kind(found.st_mode)) and found.st_uid == os.getuid() and not found.st_mode & 0o022
