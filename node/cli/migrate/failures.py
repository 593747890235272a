"""The error with which a command of `fluffle migrate` ends."""


class MigrateError(Exception):
    """A command cannot be done; the text is one line or more.   code: the exit code."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code
