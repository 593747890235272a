"""Logins that wait for a backend: one at a time for each guesser, and others beside it."""

import asyncio

from node.management.login_turns import LoginTurns


def test_logins_of_one_guesser_take_turns_and_others_do_not_wait() -> None:
    async def run() -> None:
        turns, log = LoginTurns(), []
        gates = {name: asyncio.Event() for name in ("first", "second", "other user", "other host")}

        async def log_in(label: str, host: str, user: str) -> None:
            async with turns.turn(host, user):
                log.append(label)
                await gates[label].wait()

        tasks = [
            asyncio.create_task(log_in(*each))
            for each in (
                ("first", "2001:db8::1", "ada"),
                ("second", "2001:db8::2", "ada"),
                ("other user", "2001:db8::1", "bob"),
                ("other host", "192.0.2.1", "ada"),
            )
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["first", "other user", "other host"], "one network of IPv6 is one guesser"
        gates["first"].set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert log[-1] == "second"
        for gate in gates.values():
            gate.set()
        await asyncio.gather(*tasks)
        assert len(turns) == 0

    asyncio.run(run())


def test_a_login_that_is_given_up_leaves_nothing() -> None:
    async def run() -> None:
        turns = LoginTurns()
        async with turns.turn("192.0.2.1", "ada"):
            waiting = asyncio.create_task(turns.turn("192.0.2.1", "ada").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert len(turns) == 0

    asyncio.run(run())
