"""Secrets that are easy to find again, also where somebody has encoded them on the way."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

MARK_BYTES = 12


def canary(name: str) -> str:
    """A secret for one purpose, the same in each run. Letters and digits: nothing escapes or quotes it."""
    return f"Canary{hashlib.sha256(name.encode()).hexdigest()[: 2 * MARK_BYTES]}"


def forms(secret: str) -> dict[str, bytes]:
    """Return the forms in which a secret may appear: each is found wherever the secret was a part of something.

    Base64 turns three octets into four characters, so there is one form for each place in a group of three; what
    depends on the octets before and after the secret is cut off. Lists of numbers are how Erlang prints strings.
    """
    raw = secret.encode()
    found = {"as it is": raw, "hexadecimal": raw.hex().encode(), "numbers": b",".join(b"%d" % n for n in raw)}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        first = -(-before * 8 // 6)
        last = (before + len(raw)) * 8 // 6
        found[f"base64, {before} behind"] = encoded[first:last]
    return found


def found_in(data: bytes, secrets: Mapping[str, str]) -> list[str]:
    """Return which secrets are in the data, and how.   secrets: by the names that are told."""
    squeezed = data.replace(b", ", b",")
    return [
        f"{name} ({how})"
        for name, secret in secrets.items()
        for how, form in forms(secret).items()
        if form in (squeezed if how == "numbers" else data)
    ]


def found_in_files(paths: Iterable[Path], secrets: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the secrets found in each file; files without any are left out."""
    found = {str(path): found_in(path.read_bytes(), secrets) for path in paths if path.is_file()}
    return {path: names for path, names in found.items() if names}
