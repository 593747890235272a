"""Requests between nodes, each with an answer, beside the streams between them: `requests` has their form."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from cluster.transport.interface import PeerRefused, Unreachable
from node.clustering import errors, requests
from node.clustering.errors import Unreached
from node.clustering.requests import Applicant, Body
from node.io.control import EX_SOFTWARE, EX_UNAVAILABLE, ControlError, refused, unavailable

CALL_S: Final = 5.0

Answer = Callable[[str, Body], Awaitable[Any]]
"""What answers a request: it is given the name of the node that asks, and what it asks. Raises: ControlError."""


class Calls:
    """Asks and answers for one node.   call: sends bytes to an address, and gives what is answered in time."""

    def __init__(self, name: str, call: Callable[[str, bytes, float], Awaitable[bytes]]) -> None:
        self._name = name
        self._call = call
        self._answers: dict[str, Answer] = {}

    def offer(self, answers: Mapping[str, Answer]) -> None:
        """Answer these requests, too."""
        self._answers.update(answers)

    async def ask(self, address: str, body: Body, timeout_s: float = CALL_S) -> Any:
        """Ask another node. Raises: ControlError; Unreached or exit code 69 if it could not be asked."""
        try:
            answer = await self._call(address, requests.encode(body), timeout_s)
        except Unreachable as error:
            raise Unreached(EX_UNAVAILABLE, str(error)) from error
        except PeerRefused as error:
            raise ControlError(EX_UNAVAILABLE, str(error)) from error
        return requests.result(answer)

    async def ask_any(self, members: Iterable[Applicant], body: Body, timeout_s: float = CALL_S) -> Any:
        """Ask one after the other until one answers. Raises: ControlError, the last one's."""
        last = unavailable(errors.NO_ONLINE_NODES)
        for member in members:
            try:
                return await self.ask(member.address, body, timeout_s)
            except ControlError as error:
                if error.exit_code == EX_SOFTWARE:
                    raise
                last = error
        raise last

    async def answer(self, name: str, data: bytes) -> bytes:
        """The answer to another node's request."""
        try:
            body = requests.decode(data)
            handler = self._answers.get(requests.text(body, "do"))
            if handler is None:
                raise refused(f"node '{self._name}' does not know the request {body['do']!r}")
            return requests.encode({"result": await handler(name, body)})
        except ControlError as error:
            return requests.failure(error)
