"""Metadata and membership are looked at when they are due, or have changed: once a turn, however often that is said."""

import asyncio

from node.clustering.turn import Ticks, Turn

NEVER_S = 1e12


def test_what_has_changed_is_looked_at_once_in_the_next_turn() -> None:
    done: list[str] = []

    def ticks(name: str) -> float:
        done.append(name)
        return NEVER_S

    async def main() -> None:
        turn = Turn(
            Ticks(
                metadata=lambda now: ticks("metadata"),
                look=lambda: done.append("look"),
                membership=lambda now: ticks("membership"),
                held=lambda seconds: done.append("held"),
            )
        )
        for _ in range(3):
            turn.membership_changed()
        await asyncio.sleep(0)
        assert done == ["metadata", "look", "membership", "held"], "at first both are due"
        done.clear()
        turn.metadata_changed()
        await asyncio.sleep(0)
        assert done == ["metadata", "held"]
        done.clear()
        turn.metadata_changed()
        turn.close()
        await asyncio.sleep(0)
        turn.membership_changed()
        await asyncio.sleep(0)
        assert done == []

    asyncio.run(main())


def test_what_is_due_is_looked_at_without_a_change() -> None:
    async def main() -> None:
        again = asyncio.Event()
        times: list[float] = []

        def membership(now: float) -> float:
            times.append(now)
            if len(times) > 1:
                again.set()
            return now if len(times) == 1 else NEVER_S

        turn = Turn(
            Ticks(
                metadata=lambda now: NEVER_S,
                look=lambda: None,
                membership=membership,
                held=lambda seconds: None,
            )
        )
        turn.membership_changed()
        async with asyncio.timeout(30):
            await again.wait()
        turn.close()
        assert len(times) == 2

    asyncio.run(main())


def test_a_change_that_a_tick_makes_is_not_lost() -> None:
    async def main() -> None:
        count = 0

        def membership(now: float) -> float:
            nonlocal count
            count += 1
            if count == 1:
                turn.membership_changed()
            return NEVER_S

        turn = Turn(
            Ticks(
                metadata=lambda now: NEVER_S,
                look=lambda: None,
                membership=membership,
                held=lambda seconds: None,
            )
        )
        turn.membership_changed()
        for _ in range(3):
            await asyncio.sleep(0)
        turn.close()
        assert count == 2

    asyncio.run(main())
