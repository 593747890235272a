"""Our own version, and the RabbitMQ whose behaviour we promise.

`VERSION` equals pyproject.toml's (a test proves it); reading it from installed metadata would need an
installation.
"""

from typing import Final

VERSION: Final = "0.1.0"
COMPATIBLE_VERSION: Final = "3.10.8"
"""What clients are told by default, because some choose their behaviour by it (architecture §4)."""
