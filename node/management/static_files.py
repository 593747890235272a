"""Serve the UI's files. Only files that were in the folder when the node started are served: a request opens no
path.

Source: management §4.1.
"""

import hashlib
from pathlib import Path
from typing import Final

from node.management.reply import Reply, no_such_thing

FOLDER: Final = Path(__file__).parent / "static"
FILE_BYTES_MAX: Final = 1024 * 1024

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
    "": "text/plain; charset=utf-8",
}


FILE_HEADERS: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
"""The headers of all files of the UI, and of pages of plug-ins."""


def content_type_of(name: str) -> str | None:
    """Return the content type of a file by the end of its name; None: such files are not served."""
    return _TYPES.get(Path(name).suffix)


class StaticFiles:
    """A folder's files by their paths; `/` is index.html. They are read when they are first asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            "/" + path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_file() and path.suffix in _TYPES and path.stat().st_size <= FILE_BYTES_MAX
        }
        self._read: dict[str, tuple[bytes, str]] = {}

    def reply(self, path: str, known_tag: str | None) -> Reply:
        """Return a file; 304 when the client has it. Raises: ApiError (404)."""
        path = "/index.html" if path == "/" else path
        file = self._files.get(path)
        if file is None:
            raise no_such_thing()
        if path not in self._read:
            data = file.read_bytes()
            self._read[path] = (data, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
        data, tag = self._read[path]
        headers = {**FILE_HEADERS, "etag": tag}
        if known_tag == tag:
            return Reply(304, headers=headers)
        return Reply(200, headers=headers, body=data, content_type=_TYPES[file.suffix])
