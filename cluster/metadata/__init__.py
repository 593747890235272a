"""The catalogue's log on several nodes, by PySyncObj's Raft."""

import sys
from types import ModuleType

# PySyncObj encrypts links of its own by `cryptography`, where that is installed. The links here are others, and the
# library takes 5 MB of memory: so PySyncObj finds this in place of the module that imports it.
_encryptor = ModuleType("pysyncobj.encryptor")
_encryptor.HAS_CRYPTO = False  # type: ignore[attr-defined]
_encryptor.getEncryptor = None  # type: ignore[attr-defined]
sys.modules.setdefault(_encryptor.__name__, _encryptor)
