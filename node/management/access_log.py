"""Write requests as lines of a file, one file an hour, in the format of RabbitMQ's management.

    127.0.0.1 - guest [22/Nov/2026:00:30:00 +0000] "GET /api/overview HTTP/1.1" 200 1234 "-" "curl/7.88.1"

Source: management §6.1 `management.http_log_dir`.
"""

import os
import re
import time
from collections.abc import Callable
from typing import Final

_TIME: Final = "%d/%b/%Y:%H:%M:%S +0000"
_TEXT_CHARACTERS_MAX: Final = 4096
_SECRET: Final = re.compile(r"([?&]auth=)[^&\s]*")
"""Matches a name and password in an address."""


class AccessLog:
    """A log of requests in a directory, which is made.   clock: seconds since 1970.   Raises: OSError, also when it
    writes.
    """

    def __init__(self, directory: str, clock: Callable[[], float] = time.time) -> None:
        os.makedirs(directory, mode=0o750, exist_ok=True)
        self._directory = directory
        self._clock = clock

    def write(
        self, peer: str, user: str, request: str, status: int, size: int, referer: str, agent: str
    ) -> None:
        """Write the line of one answer.   request: method, target and version.   size: octets of the body."""
        now = time.gmtime(self._clock())
        line = (
            f'{peer} - {_safe(user) or "-"} [{time.strftime(_TIME, now)}] "{_safe(request)}" {status} {size}'
            f' "{_safe(referer) or "-"}" "{_safe(agent) or "-"}"\n'
        )
        path = os.path.join(self._directory, time.strftime("access.log.%Y_%m_%d_%H", now))
        with open(path, "a", encoding="utf-8", opener=_open_ours) as file:
            file.write(line)


def _open_ours(path: str, flags: int) -> int:
    """Open a file that not everybody may read: it says which user did what from where."""
    return os.open(path, flags, 0o640)


def _safe(text: str) -> str:
    """Return a text that neither ends a line nor its quotes, without secrets."""
    text = _SECRET.sub(r"\1***", text)
    return text[:_TEXT_CHARACTERS_MAX].encode("unicode_escape").decode().replace('"', '\\"')
