"""Our own version, the RabbitMQ whose behaviour we promise, and the mark of our nodes.

`VERSION` equals pyproject.toml's (a test proves it); reading it from installed metadata would need an
installation.
"""

from typing import Final

VERSION: Final = "0.1.0"
COMPATIBLE_VERSION: Final = "3.10.8"
"""The version that clients get by default, because some choose their behaviour by it (docs/differences.md,
"Connections and frames")."""

NODE_MARK: Final = "urn:fluffle:node"
"""The URI that certificates of nodes have among their alternative names, and those of clients don't: an authority may
sign both."""
