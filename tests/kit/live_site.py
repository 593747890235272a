"""A `Site` whose broker has turns, so that direct clients are answered; it remembers what its rows were asked for."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from tests.kit.fake_site import Caller, FakeSite
from tests.kit.world import World


class LiveSite(FakeSite):
    """A site with one node, whose turns run.

    queries: what rows were asked for.   canned: rows by kind, in place of those of the statistics.
    questions: what other nodes were asked.   answers: theirs, by question.
    """

    def __init__(self) -> None:
        self.world = World()
        super().__init__(self.world.broker)
        self.world.broker.wake = self._wake
        self.queries: list[tuple[Kind, Query, set[str] | None]] = []
        self.canned: dict[Kind, list[Row]] = {}
        self.questions: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}

    def _wake(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self.world.settle)
        except RuntimeError:  # a test that does something outside of the loop settles by itself
            return

    async def rows(self, kind: Kind, query: Query, nodes: Iterable[str] | None = None) -> list[Row]:
        self.queries.append((kind, query, None if nodes is None else set(nodes)))
        if kind not in self.canned:
            return await super().rows(kind, query, nodes)
        rows = [row for row in self.canned[kind] if query.ids is None or row["id"] in query.ids]
        wanted = query.fields
        if wanted is None:
            return [dict(row) for row in rows]
        return [{key: row[key] for key in row if key == "id" or key in wanted} for row in rows]

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        self.questions.append((node, question, dict(arguments)))
        return self.answers.get(question)

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.questions.append(("*", question, dict(arguments)))
        return {}


def live() -> tuple[LiveSite, Caller]:
    """Return a site, and a client that sends it requests as guest."""
    site = LiveSite()
    return site, Caller(site)
