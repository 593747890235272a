"""spark-submit runs this script: it runs commands of spark-ops one after the other, in one session.

    several_commands.py COMMANDS RESULTS     paths of JSON files: a list of lists of words, a list of what came of them

A driver and its executors start once for all of the commands; each command finds the session and leaves it open. A
result has the code and all that was printed. The script's exit code is that of the last command.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from spark_ops.cli.main import main
from spark_ops.jobs.session import session


def run(words: list[str]) -> dict[str, object]:
    """Run a command. Returns: its code, and what it has printed on standard output and on standard error."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(words)
    return {"code": code, "output": output.getvalue(), "errors": errors.getvalue()}


if __name__ == "__main__":
    commands, results = map(Path, sys.argv[1:])
    with session("several commands"):
        found = [run(words) for words in json.loads(commands.read_text())]
    results.write_text(json.dumps(found))
    sys.exit(found[-1]["code"])
