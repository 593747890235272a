"""`export_definitions` and `import_definitions`: files, standard streams, long documents (management §2.2, §3.2)."""

import io
import json
from pathlib import Path

import pytest

from node.cli.ctl import definition_commands
from tests.node.cli.ctl.fake_node import FakeNode, Run

DOCUMENT = {"vhosts": [{"name": "/"}], "rabbit_version": "3.10.8"}
TEXT = '{"rabbit_version":"3.10.8","vhosts":[{"name":"/"}]}'
STARTED = "Successfully started definition import. This process is asynchronous and can take some time.\n"


@pytest.fixture(autouse=True)
def answers(fake: FakeNode) -> None:
    fake.answers["export_definitions"] = {"definitions": DOCUMENT}


def test_export_to_standard_output(run: Run) -> None:
    """Nothing but the document."""
    assert run("export_definitions", "-") == (0, f"{TEXT}\n", "")
    assert run("export_definitions", "-", "--format", "json", "--formatter", "json")[1] == f"{TEXT}\n"


def test_export_to_a_file(run: Run, tmp_path: Path) -> None:
    """An export holds hashes of passwords, so its file is for its owner alone."""
    file = tmp_path / "d.json"
    banner = f'Exporting definitions in JSON to a file at "{file}" ...\n'
    assert run("export_definitions", str(file)) == (0, banner, "")
    assert (file.read_text(), file.stat().st_mode & 0o777) == (TEXT, 0o600)
    code, _, error = run("export_definitions", "/nodir/x.json")
    assert code == 65
    assert error.startswith("Error (argument validation): Bad argument: Directory /nodir does not exist\n")


@pytest.mark.parametrize("format_", ["nope", "erlang"])
def test_formats(run: Run, format_: str) -> None:
    assert run("export_definitions", "-", "--format", format_)[0] == 65


def test_import_of_a_file(run: Run, fake: FakeNode, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text(TEXT)
    banner = f'Importing definitions in JSON from a file at "{file}" ...\n'
    assert run("import_definitions", str(file)) == (0, banner + STARTED, "")
    assert fake.asked == [
        (
            "import_definitions",
            {"number": None, "part": TEXT, "skip_if_unchanged": False, "skip_unsupported": False},
        )
    ]
    run("import_definitions", str(file), "--skip-if-unchanged")
    assert fake.asked[1][1]["skip_if_unchanged"] is True
    assert json.loads(run("import_definitions", str(file), "--formatter", "json")[1])["result"] == "ok"


def test_import_from_standard_input(run: Run, fake: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ((), ("-",)):
        monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
        assert run("import_definitions", *words)[1] == (
            f"Importing definitions in JSON from standard input ...\n{STARTED}"
        )
    assert [asked["part"] for _, asked in fake.asked] == [TEXT, TEXT]


def test_a_long_document_goes_in_parts(run: Run, fake: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_commands, "_PARTS_BYTES", 20)
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    fake.answers["upload"] = {"number": 7}
    assert run("import_definitions")[0] == 0
    assert [operation for operation, _ in fake.asked] == ["upload", "upload", "import_definitions"]
    assert [asked["number"] for _, asked in fake.asked] == [None, 7, 7]
    assert "".join(asked["part"] for _, asked in fake.asked) == TEXT


def test_what_cannot_be_imported(
    run: Run, fake: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes to the node."""
    assert run("import_definitions", str(tmp_path / "no"))[0] == 65
    for text in ("", "{", "[" * 100_000):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        code, _, error = run("import_definitions")
        assert code == 65
        assert error.startswith("Error:\nFailed to deserialise input (format: JSON) (error: ")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert run("import_definitions", str(tmp_path / "binary"))[0] == 65
    assert fake.asked == []


def test_what_was_skipped_is_told(run: Run, fake: FakeNode, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text(TEXT)
    fake.answers["import_definitions"] = {"skipped": ["parameters {'name': 's'}: component shovel not found"]}
    code, output, _ = run("import_definitions", str(file), "--skip-unsupported")
    assert code == 0
    assert "Skipped, as it is not supported: parameters {'name': 's'}: component shovel not found\n" in output
    assert fake.asked[-1][1]["skip_unsupported"] is True
