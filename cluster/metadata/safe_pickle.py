"""A restricted stand-in for `pickle` inside PySyncObj.

Our messages, entries and snapshots are protobuf, so nothing should be pickled at all. A pickle may hold plain values
and nodes, and no other class is ever looked up. Source: reliability §3.6, §3.9 item 4.
"""

import io
import pickle
from typing import IO, Any, Final

_NODE_MODULES: Final = ("pysyncobj.node", "cluster.metadata.core")
_NODE_NAMES: Final = ("Node", "Peer")


class _Unpickler(pickle.Unpickler):
    """Makes int, str, bytes, tuple, list, dict, set, None, bool, which need no class, and nodes."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _NODE_MODULES and name in _NODE_NAMES:
            return super().find_class(module, name)
        if (module, name) in (("builtins", "set"), ("__builtin__", "set")):
            return set
        if (module, name) in (("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor")):
            return super().find_class("copyreg", "_reconstructor")
        if (module, name) in (("builtins", "object"), ("__builtin__", "object")):
            return object
        if (module, name) == ("_codecs", "encode"):
            return _latin_1
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a message of Raft")


class SafePickle:
    """The functions of `pysyncobj.pickle`, restricted."""

    UnpicklingError = pickle.UnpicklingError

    @staticmethod
    def to_bytes(data: bytes | str) -> bytes:
        """Return bytes as they are, and text encoded in UTF-8."""
        return data if isinstance(data, bytes) else data.encode()

    @staticmethod
    def loads(data: bytes | str) -> Any:
        """Unpickle a value. Raises UnpicklingError when it is more than plain values and nodes."""
        return _Unpickler(io.BytesIO(SafePickle.to_bytes(data))).load()

    @staticmethod
    def load(file: IO[bytes]) -> Any:
        """Unpickle a value from a file, as `loads` does."""
        return _Unpickler(file).load()

    @staticmethod
    def dumps(value: object, protocol: int | None = None) -> bytes:
        """Pickle a value, by default with protocol 2."""
        return pickle.dumps(value, 2 if protocol is None else protocol)

    @staticmethod
    def dump(value: object, file: IO[bytes], protocol: int | None = None) -> None:
        """Pickle a value into a file, by default with protocol 2."""
        pickle.dump(value, file, 2 if protocol is None else protocol)


def _latin_1(text: str, encoding: str) -> bytes:
    """Rebuild bytes, which protocol 2 writes as a latin1 text."""
    if type(text) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("bytes are said in latin1")
    return text.encode("latin-1")
