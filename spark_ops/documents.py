"""JSON documents that are kept, compared and signed by their hash: plans, topologies, health and report."""

import hashlib
import json
from typing import Any


def canonical(document: Any) -> str:
    """The one way to write a document: keys sorted, no blanks, UTF-8 as it is. Raises: ValueError for NaN."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(document: Any) -> str:
    """`sha256:` and 64 hexadecimal digits of the canonical text."""
    text = canonical(document).encode("utf-8", "surrogatepass")
    return "sha256:" + hashlib.sha256(text).hexdigest()
