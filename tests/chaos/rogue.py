"""A peer that is no node: it has a member's name and place, and says whatever a test wants.

    python -m tests.chaos.rogue      a JSON object on standard input, what happened as one on standard output

In a process of its own, whose loop a test can neither hold up nor fill.
"""

import asyncio
import base64
import json
import logging
import sys
from typing import Any, Final

from cluster.transport.interface import Hello, Identity, LinkOptions, PeerRefused, Topic, Unreachable
from cluster.transport.security import Security
from cluster.transport.transport import Transport

WAIT_S: Final = 20.0


class Rogue(logging.Handler):
    """Lets everybody in and listens to nobody."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.is_linked = asyncio.Event()
        self.heard = 0
        logger = logging.Logger("rogue")
        logger.addHandler(self)
        identity = Identity(asked["name"], asked["node_id"], asked["cluster_id"], asked["incarnation"])
        security = Security(secret=asked["secret"].encode())
        self.transport = Transport(identity, security, self, LinkOptions(), logger=logger)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    # --- Listener ---

    def admit(self, hello: Hello) -> str | None:
        return None

    def link_up(self, name: str, incarnation: int) -> None:
        self.is_linked.set()

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        self.lines.append(f"down: {reason}")

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        self.heard += len(messages)

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        self.heard += len(frames)

    def received(self) -> None:
        pass

    def relieved(self, name: str) -> None:
        pass

    async def call(self, name: str, body: bytes) -> bytes:
        return b"{}"


async def run(asked: dict[str, Any]) -> dict[str, Any]:
    """asked: who to be, `listen` (port), `peer` (name) at `address`, `control` (topic and base64), `call`."""
    rogue = Rogue(asked)
    transport = rogue.transport
    answer = ""
    await transport.listen("127.0.0.1", asked["listen"])
    try:
        if asked.get("call"):
            try:
                answer = (await transport.call(asked["address"], asked["call"].encode(), WAIT_S)).decode()
            except (PeerRefused, Unreachable) as error:
                answer = f"{type(error).__name__}: {error}"
        if asked.get("is_linking"):
            transport.connect(asked["peer"], asked["address"])
            try:
                async with asyncio.timeout(asked.get("wait_s", WAIT_S)):
                    await rogue.is_linked.wait()
            except TimeoutError:
                rogue.lines.append("not linked")
            for topic, message in asked.get("control", ()):
                transport.send_control(asked["peer"], Topic(topic), base64.b64decode(message))
            await asyncio.sleep(asked.get("stays_s", 0.5))
    finally:
        await transport.close()
    return {"lines": rogue.lines, "answer": answer, "is_linked": rogue.is_linked.is_set()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
