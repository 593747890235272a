"""The error that ends a command with one clear line, and the exit codes."""

from typing import Final

EX_FINDINGS: Final = 1
EX_USAGE: Final = 2
EX_UNKNOWN: Final = 3
EX_ENGINE: Final = 4


class OpsError(Exception):
    """One line for the operator: the problem and its remedy.   exit_code: see `spark_ops.cli.main`."""

    def __init__(self, text: str, exit_code: int = EX_USAGE) -> None:
        super().__init__(text)
        self.exit_code = exit_code
