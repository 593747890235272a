"""`export_definitions` and `import_definitions` of the command line. A long document comes in parts (`Uploads`).

Source: management §2.2, §3.2.
"""

import asyncio
import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from node.admin import definitions
from node.agent import errors
from node.agent.admin_operations import AdminOperations, as_control_error
from node.agent.table_operations import Arguments, Verb, text
from node.catalogue.commands import SetGlobalParameter
from node.io.control import EX_USAGE, ControlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.app import Node
    from node.process.agent import Agent

UPLOAD_MAX_BYTES: Final = 1 << 30
UPLOADS_MAX: Final = 4
"""The most documents that are uploaded at the same time; a further one is refused."""
UPLOAD_S: Final = 60.0
"""The time that the next part of an upload may take; after it the upload is dropped."""


class Uploads:
    """Texts that come in parts.   `put` each part but the last, then `take` with the last."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._parts: dict[int, list[str]] = {}
        self._ends: dict[int, asyncio.TimerHandle] = {}

    def put(self, number: object, part: str) -> int:
        """Add a part; return the number for the next one.   number: None for the first. Raises: ControlError."""
        if number is None:
            if len(self._parts) >= UPLOADS_MAX:
                raise errors.unavailable(f"{UPLOADS_MAX} documents are being handed in: try again later")
            number = next(self._numbers)
            self._parts[number] = []
        parts = self._known(number)
        assert isinstance(number, int)
        parts.append(part)
        if sum(map(len, parts)) > UPLOAD_MAX_BYTES:
            self._drop(number)
            raise ControlError(EX_USAGE, f"a document has {UPLOAD_MAX_BYTES} bytes at most")
        if number in self._ends:
            self._ends[number].cancel()
        self._ends[number] = asyncio.get_running_loop().call_later(UPLOAD_S, self._drop, number)
        return number

    def take(self, number: object, part: str) -> str:
        """Add the last part and return the text.   number: None if this is the only part. Raises: ControlError."""
        if number is None:
            return part
        parts = self._known(number)
        assert isinstance(number, int)
        self._drop(number)
        return "".join([*parts, part])

    def _known(self, number: object) -> list[str]:
        if type(number) is not int or number not in self._parts:
            raise ControlError(EX_USAGE, "the other parts of this document are not there (any more)")
        return self._parts[number]

    def _drop(self, number: int) -> None:
        del self._parts[number]
        end = self._ends.pop(number, None)
        if end is not None:
            end.cancel()


class DefinitionOperations(AdminOperations):
    """The operations that export and import definitions, by name in `asking`."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        super().__init__(agent, running)
        self._uploads = Uploads()
        self.asking: dict[str, Verb] = {
            "export_definitions": self._export,
            "import_definitions": self._import,
            "upload": self._upload,
        }

    async def _export(self, arguments: Arguments, timeout_s: float) -> Any:
        with as_control_error():
            return {"definitions": await definitions.export_definitions(self._admin, is_full=True)}

    async def _upload(self, arguments: Arguments, timeout_s: float) -> Any:
        self._running()
        return {"number": self._uploads.put(arguments.get("number"), text(arguments, "part"))}

    async def _import(self, arguments: Arguments, timeout_s: float) -> Any:
        self._running()
        whole = self._uploads.take(arguments.get("number"), text(arguments, "part"))
        data = whole.encode("utf-8", "surrogatepass")
        try:
            document = await asyncio.to_thread(definitions.parse, data)
        except ValueError as error:
            raise errors.unavailable(str(error)) from None
        admin = self._admin
        digest = hashlib.new(admin.config.definitions.hashing_algorithm, data).hexdigest()
        can_skip = arguments.get("skip_if_unchanged") is True
        if can_skip and admin.catalogue.global_parameter(definitions.IMPORTED_HASH) == digest:
            return {}
        with as_control_error():
            left_out = await definitions.import_definitions(
                admin, document, skips_unsupported=arguments.get("skip_unsupported") is True
            )
            if can_skip:
                await admin.submit(SetGlobalParameter(definitions.IMPORTED_HASH, digest))
        return {"skipped": left_out}
