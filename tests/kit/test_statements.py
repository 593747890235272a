"""The kit of statements finds names of tests that do not exist, and citations that are not listed."""

from pathlib import Path

import pytest

from tests.kit import statements
from tests.kit.statements import Statements, has_tests_or_a_reason, named_tests


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Statements:
    """A page, and a folder with one test, which cites the statements 1 and 2."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("| 1 | `test_one` |\n")
    folder = tmp_path / "tests" / "deep"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text('def test_one():\n    """1 2"""\ndef other():\n    """3"""\n')
    monkeypatch.setattr(statements, "ROOT", tmp_path)
    return Statements("page.md", ("tests",))


def test_names_without_a_test_are_missing(page: Statements) -> None:
    """Tests below the folders are known, other functions are not."""
    assert page.page == "| 1 | `test_one` |\n"
    assert page.missing(["test_one", "other", "test_two"]) == ["other", "test_two"]


def test_citations_that_are_not_listed_are_told(page: Statements) -> None:
    """A statement that a test cites must list it."""
    assert page.unlisted({"1": ("test_one",), "2": ("test_two",)}, str.split) == ["test_one cites 2"]
    assert page.unlisted({"1": ("test_one",)}, str.split) == ["test_one cites 2"]
    assert page.unlisted({"1": ("test_one",), "2": ("test_one",)}, str.split) == []


def test_cells_name_tests_or_give_a_reason() -> None:
    """A cell that begins with a quotation is meant to name a test."""
    assert named_tests("`test_one`, `test_two_3`; `node/x.py`") == ("test_one", "test_two_3")
    assert has_tests_or_a_reason("`test_one`")
    assert has_tests_or_a_reason("for clients only")
    assert not has_tests_or_a_reason("`tset_one`")
