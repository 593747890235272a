"""The names that clients claim, asked of the other nodes: many claims in one question.

    claim ─► waits while a question is under way ─► one question with all that wait ─► an answer for each

A node that does not answer within `node.clustering.questions.ANSWER_S` counts as one without the name: it is down,
cut off or about to be declared so.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from node.client.client_names import Claim, ClientNames
from node.io.control import EX_USAGE, ControlError

CLAIMS_MAX: Final = 1000
"""The most claims in one question; the others wait for the next one."""


class Questions(Protocol):
    """`node.clustering.questions.Questions`, as this module uses it."""

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Ask all nodes that run."""


class ClientClaims:
    """The claims of one node's clients that the other nodes have not answered."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._waiting: list[tuple[Claim, Callable[[bool], None]]] = []
        self._asking: asyncio.Task[None] | None = None

    def ask(self, claim: Claim, on_answer: Callable[[bool], None]) -> None:
        """Ask the other nodes to release a name.   on_answer: told whether one of them has a later claim."""
        self._waiting.append((claim, on_answer))
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:CLAIMS_MAX], self._waiting[CLAIMS_MAX:]
                claims = [[*claim[:3], *claim.stamp] for claim, _ in asked]
                answers = await self._questions.ask_all("release_clients", {"claims": claims})
                older = {place for places in answers.values() for place in places}
                for place, (_, on_answer) in enumerate(asked):
                    on_answer(place in older)
        finally:
            self._asking = None


def released(names: ClientNames, claims: object) -> list[int]:
    """Release the names in another node's question; return the places of claims that are older than the own ones.

    Raises: ControlError for a malformed question.
    """
    if not isinstance(claims, list) or len(claims) > CLAIMS_MAX:
        raise ControlError(EX_USAGE, "the claims of clients are not understood")
    older = []
    for place, each in enumerate(claims):
        match each:
            case [str(plugin), str(vhost), str(name), int(at_ms), str(node), int(number)]:
                if names.release(Claim(plugin, vhost, name, (at_ms, node, number))):
                    older.append(place)
            case _:
                raise ControlError(EX_USAGE, "a claim of a client is not understood")
    return older
