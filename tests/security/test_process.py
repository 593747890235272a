"""A node's files are closed to other users of the machine (reliability §6 "Process", "Secrets")."""

import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.security.session import Session

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def open_to_others(paths: Iterable[Path]) -> dict[str, str]:
    """Modes of files and directories that group or others may do something with."""
    modes = {path: path.lstat().st_mode for path in paths if not path.is_symlink()}
    return {str(path): stat.filemode(mode) for path, mode in modes.items() if mode & OTHERS}


def test_files_that_are_open_to_others_are_found(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o640)
    (tmp_path / "closed").touch(0o600)
    assert list(open_to_others(tmp_path.iterdir())) == [str(tmp_path / "open")]


@pytest.mark.slow
def test_data_are_for_the_nodes_user_alone_whatever_the_umask(session: Session) -> None:
    """The nodes of the session ran with a umask of 0. Messages, hashes of passwords, metadata, telemetry."""
    kept = session.kept()
    assert len(kept) > 20
    roots = [node.data for node in session.nodes]
    assert open_to_others([*roots, *kept]) == {}


@pytest.mark.slow
def test_the_seed_of_the_configuration_replaces_guest(session: Session) -> None:
    """With `default_user` there is no user that everybody knows the password of."""
    (text,) = [text for what, text in session.printed.items() if "list_users" in what]
    assert "operator" in text
    assert "guest" not in text
