"""Nodes ask each other for the state of clients and queues, for the HTTP API and `fluffle ctl`.

    {"do": "question", "question": "rows", "arguments": …} ─► {"parts": 3, "number": 7, "part": "…"}
    {"do": "question_part", "number": 7, "part": 1}        ─► "…"

Arguments and answers are packed (`packing`), as they may be longer than a call. A question to this node is not sent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from node.clustering import packing
from node.clustering.requests import Body
from node.io.control import EX_USAGE, ControlError, unavailable

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

Arguments = Mapping[str, Any]
Question = Callable[[Arguments], Awaitable[Any]]

ANSWER_S: Final = 5.0
"""The time that a node gets to answer; after it the node is left out."""
PARTS_MAX: Final = 100


class Questions:
    """One node's questions to all nodes, and its answers to theirs.

    known: the questions that can be asked, by name.   cluster: returns None for a node without one.
    """

    def __init__(
        self,
        name: str,
        known: Mapping[str, Question],
        cluster: "Callable[[], Cluster | None]",
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]",
    ) -> None:
        self._name = name
        self._known = known
        self._cluster = cluster
        self._logger = logger
        self._shelf = packing.Shelf()
        self.answers: Mapping[str, Callable[[str, Body], Awaitable[Any]]] = {
            "question": self._question,
            "question_part": self._part,
        }
        """Handlers of other nodes' requests, by the name of the request (`Calls.offer`)."""

    # --- asking ---

    async def ask(self, node: str, question: str, arguments: Arguments) -> Any:
        """Return one node's answer to a question. Raises: ControlError if the node does not run, or is too slow."""
        if node == self._name:
            return await self._own(question, arguments)
        address, cluster = self._addresses().get(node), self._cluster()
        if address is None or cluster is None:
            raise unavailable(f"node '{node}' is not running")
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._ask(cluster, address, question, arguments)
        except TimeoutError:
            raise unavailable(f"node '{node}' does not answer") from None

    async def ask_all(
        self, question: str, arguments: Arguments, nodes: Iterable[str] | None = None
    ) -> dict[str, Any]:
        """Ask all nodes that run, or those of `nodes` that do; return the answers by node, without those that fail."""
        own = self._name
        names = [own, *self._addresses()]
        if nodes is not None:
            chosen = set(nodes)
            names = [name for name in names if name in chosen]
        answers = await asyncio.gather(*(self._or_none(name, question, arguments) for name in names))
        return {name: answer[0] for name, answer in zip(names, answers, strict=True) if answer is not None}

    async def _or_none(self, node: str, question: str, arguments: Arguments) -> tuple[Any] | None:
        try:
            return (await self.ask(node, question, arguments),)
        except ControlError as error:
            self._logger.debug("node '%s' did not answer '%s': %s", node, question, error)
            return None

    async def _ask(self, cluster: "Cluster", address: str, question: str, arguments: Arguments) -> Any:
        body = {"do": "question", "question": question, "arguments": await packing.pack(dict(arguments))}
        answer = await cluster.calls.ask(address, body, ANSWER_S)
        try:
            number, count, parts = answer["number"], int(answer["parts"]), [str(answer["part"])]
        except (TypeError, KeyError, ValueError):
            raise unavailable("an answer between nodes is not understood") from None
        if not 1 <= count <= PARTS_MAX:
            raise unavailable("an answer between nodes is too long")
        for part in range(1, count):
            asked = {"do": "question_part", "number": number, "part": part}
            parts.append(str(await cluster.calls.ask(address, asked, ANSWER_S)))
        return await packing.unpack(parts)

    def _addresses(self) -> dict[str, str]:
        """Return the addresses of the other members that are up and run a broker, by name."""
        cluster = self._cluster()
        if cluster is None:
            return {}
        members = cluster.roster.members
        return {
            each.name: each.address
            for each in cluster.voting.others()
            if each.name in members and members[each.name].is_up and each.type != "witness"
        }

    # --- answering ---

    async def _own(self, question: str, arguments: Arguments) -> Any:
        known = self._known.get(question)
        if known is None:
            raise ControlError(EX_USAGE, f"there is no question '{question}'")
        return await known(arguments)

    async def _question(self, name: str, body: Body) -> Any:
        arguments = body.get("arguments")
        if not isinstance(arguments, list) or not all(isinstance(part, str) for part in arguments):
            raise ControlError(EX_USAGE, "a question between nodes has no arguments")
        unpacked = await packing.unpack(arguments)
        if not isinstance(unpacked, dict):
            raise ControlError(EX_USAGE, "the arguments of a question between nodes are not an object")
        parts = await packing.pack(await self._own(str(body.get("question")), unpacked))
        number = self._shelf.put(parts) if len(parts) > 1 else 0
        return {"parts": len(parts), "number": number, "part": parts[0]}

    async def _part(self, name: str, body: Body) -> Any:
        return self._shelf.take(body.get("number"), body.get("part"))
