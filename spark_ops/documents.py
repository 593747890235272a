"""The canonical text and the hash of JSON documents (plans, topologies, health, reports)."""

import hashlib
import json
from typing import Any


def canonical(document: Any) -> str:
    """Return the canonical text of a document: keys sorted, no blanks, UTF-8 unescaped. Raises: ValueError for NaN."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(document: Any) -> str:
    """Return `sha256:` and 64 hexadecimal digits, the hash of the document's canonical text."""
    text = canonical(document).encode("utf-8", "surrogatepass")
    return "sha256:" + hashlib.sha256(text).hexdigest()
