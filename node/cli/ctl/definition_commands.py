"""`export_definitions` and `import_definitions` use a JSON file, standard output or standard input.

The text is passed on unchanged: the node reads and writes definitions. Source: management §2.2, §3.2.
"""

import json
import os
import sys
from typing import Any, Final

from node.cli.ctl.command import Call, Command, CtlSession, Failed, Refused
from node.cli.ctl.formats import Done, Message, Outcome, Report, compact
from node.operations.operation import EX_DATAERR, LONG_TIMEOUT_S

_S: Final = "Definitions"
_STARTED: Final = (
    "Successfully started definition import. This process is asynchronous and can take some time."
)
_PARTS_BYTES: Final = 256 * 1024
"""The characters of a document in one request: requests are bounded (`node.io.control`)."""


def _check(call: Call) -> None:
    format_ = call.line.texts.get("format", "json").lower()
    if format_ not in ("json", "erlang"):
        raise Refused("Bad argument: Format should be either json or erlang", EX_DATAERR)
    if format_ == "erlang":
        raise Refused("Bad argument: the format erlang needs Erlang: use json", EX_DATAERR)


def _check_export(call: Call) -> dict[str, Any]:
    _check(call)
    path = call.words[0]
    directory = os.path.dirname(path) or "."
    if path != "-" and not os.path.isdir(directory):
        raise Refused(f"Bad argument: Directory {directory} does not exist", EX_DATAERR)
    return {}


def _export(call: Call, session: CtlSession) -> Outcome:
    text = compact(session.ask("export_definitions")["definitions"])
    path = call.words[0]
    if path == "-":
        return Report({}, text, json_text=text)
    try:
        # Hashes of passwords are in it.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise Failed(EX_DATAERR, f"Failed to write {path}: {error.strerror}") from None
    return Report({}, "", json_text="", is_blank=True)


def _banner_of_export(call: Call) -> str:
    """Return the banner; none where the document itself goes to standard output."""
    if call.words[0] == "-":
        return ""
    return f'Exporting definitions in JSON to a file at "{call.words[0]}" ...'


def _check_import(call: Call) -> dict[str, Any]:
    _check(call)
    if call.words and call.words[0] != "-" and not os.path.isfile(call.words[0]):
        raise Refused(f"Bad argument: File {call.words[0]} does not exist", EX_DATAERR)
    return {}


def _import(call: Call, session: CtlSession) -> Outcome:
    try:
        if call.words and call.words[0] != "-":
            with open(call.words[0], encoding="utf-8") as file:
                text = file.read()
        else:
            text = sys.stdin.read()
        json.loads(text)
    except OSError as error:
        raise Failed(EX_DATAERR, f"Failed to read {call.words[0]}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failed(EX_DATAERR, f"Failed to deserialise input (format: JSON) (error: {error})") from None
    # One transfer in parts: many files are longer than a request may be.
    parts = [text[at : at + _PARTS_BYTES] for at in range(0, len(text), _PARTS_BYTES)]
    number = None
    for part in parts[:-1]:
        number = session.ask("upload", {"number": number, "part": part})["number"]
    done = session.ask(
        "import_definitions",
        {
            "number": number,
            "part": parts[-1] if parts else "",
            "skip_if_unchanged": call.line.is_set("skip-if-unchanged"),
            "skip_unsupported": call.line.is_set("skip-unsupported"),
        },
    )
    for text in done.get("skipped", ()):
        session.say(f"Skipped, as it is not supported: {text}")
    return Done() if session.formatter.startswith("json") else Message(_STARTED)


def _banner_of_import(call: Call) -> str:
    if not call.words or call.words[0] == "-":
        return "Importing definitions in JSON from standard input ..."
    return f'Importing definitions in JSON from a file at "{call.words[0]}" ...'


DEFINITIONS: Final[dict[str, Command]] = {
    "export_definitions": Command(
        _S,
        "Exports definitions as JSON; - is standard output",
        '<file_path | "-"> [--format <json>] [--timeout <timeout>]',
        (1, 1),
        frozenset({"format"}),
        banner=_banner_of_export,
        request=_check_export,
        perform=_export,
        timeout_s=LONG_TIMEOUT_S,
    ),
    "import_definitions": Command(
        _S,
        "Imports definitions as JSON from a file, or from standard input",
        '<file_path | "-"> [--format <json>] [--skip-if-unchanged] [--skip-unsupported]',
        (0, 1),
        frozenset({"format", "skip-if-unchanged", "skip-unsupported"}),
        banner=_banner_of_import,
        request=_check_import,
        perform=_import,
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
}
