"""Nodes send each other requests, each with an answer, beside the streams between them: `requests` has their form."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from cluster.transport.interface import PeerRefused, Unreachable
from node.clustering import errors, requests
from node.clustering.errors import Unreached
from node.clustering.requests import Applicant, Body
from node.io.control import EX_SOFTWARE, EX_UNAVAILABLE, ControlError, refused, unavailable

CALL_S: Final = 5.0

Answer = Callable[[str, Body], Awaitable[Any]]
"""A handler of a request. Arguments: the name of the node that asks, and the request. Raises: ControlError."""


class Calls:
    """One node's requests to other nodes, and its answers to theirs.

    call: sends bytes to an address and returns the answer; the last argument is the timeout in seconds.
    """

    def __init__(self, name: str, call: Callable[[str, bytes, float], Awaitable[bytes]]) -> None:
        self._name = name
        self._call = call
        self._answers: dict[str, Answer] = {}

    def offer(self, answers: Mapping[str, Answer]) -> None:
        """Add handlers, by the name of the request."""
        self._answers.update(answers)

    async def ask(self, address: str, body: Body, timeout_s: float = CALL_S) -> Any:
        """Send a request to another node and return the result.

        Raises: ControlError; Unreached, or exit code 69, if the node could not be asked.
        """
        try:
            answer = await self._call(address, requests.encode(body), timeout_s)
        except Unreachable as error:
            raise Unreached(EX_UNAVAILABLE, str(error)) from error
        except PeerRefused as error:
            raise ControlError(EX_UNAVAILABLE, str(error)) from error
        return requests.result(answer)

    async def ask_any(self, members: Iterable[Applicant], body: Body, timeout_s: float = CALL_S) -> Any:
        """Send a request to one member after the other until one answers.

        Raises: ControlError: at once if a member refuses (exit code 70), else the last member's.
        """
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
        """Return the encoded answer to another node's request. An error of the handler becomes an answer, too."""
        try:
            body = requests.decode(data)
            handler = self._answers.get(requests.text(body, "do"))
            if handler is None:
                raise refused(f"node '{self._name}' does not know the request {body['do']!r}")
            return requests.encode({"result": await handler(name, body)})
        except ControlError as error:
            return requests.failure(error)
