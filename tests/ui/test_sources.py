"""The UI's files among each other: what one names, another is."""

import re
from pathlib import Path
from typing import Final

from node.management.resources.plugins import BUILT_IN_PAGES
from node.management.static_files import FOLDER

SCRIPTS: Final = sorted((FOLDER / "js").rglob("*.js"))
STYLES: Final = sorted((FOLDER / "css").glob("*.css"))


def page_files() -> list[str]:
    """The files that js/pages.js names."""
    return re.findall(r"file: '([a-z_]+)'", (FOLDER / "js/pages.js").read_text())


def test_all_that_is_named_is_there() -> None:
    """Imports, style sheets, icons."""
    missing = []
    for path in SCRIPTS:
        for target in re.findall(
            r"^(?:import|export)[^;]*? from '([^']+)';$", path.read_text(), re.MULTILINE
        ):
            if not (path.parent / target).is_file():
                missing.append(f"{path.name}: {target}")
    document = (FOLDER / "index.html").read_text()
    missing += [
        name for name in re.findall(r'(?:href|src)="([^"]+)"', document) if not (FOLDER / name).is_file()
    ]
    symbols = (FOLDER / "img/icons.svg").read_text()
    icons = {name for path in SCRIPTS for name in re.findall(r"\bicon\('([a-z]+)'\)", path.read_text())}
    missing += sorted(name for name in icons if f'id="{name}"' not in symbols)
    assert missing == []


def test_each_page_has_its_file_and_each_file_its_page() -> None:
    of_plugins = {Path(script).stem for _, script, _ in BUILT_IN_PAGES.values()}
    assert {path.stem for path in (FOLDER / "js/pages").glob("*.js")} == of_plugins.union(page_files())


def test_names_that_are_imported_are_exported() -> None:
    wrong = []
    for path in SCRIPTS:
        found = re.findall(r"^import \{([^}]*)\} from '([^']+)';$", path.read_text(), re.MULTILINE)
        for names, target in found:
            exported = (path.parent / target).read_text() if (path.parent / target).is_file() else ""
            for name in filter(None, (each.strip().split(" as ")[0] for each in names.split(","))):
                if not re.search(
                    rf"export (?:async )?(?:function|const|let|class) {re.escape(name)}\b", exported
                ):
                    wrong.append(f"{path.name}: {name} of {target}")
    assert wrong == []


def test_colours_are_defined_for_both_themes() -> None:
    light, dark = (FOLDER / "css/theme.css").read_text().split(':root[data-theme="dark"]')
    used = {name for path in STYLES for name in re.findall(r"var\((--[a-z-]+)", path.read_text())}
    assert {name for name in used if f"{name}:" not in light} == set()
    colours = set(re.findall(r"(--[a-z-]+): #", light))
    assert {name for name in colours if f"{name}:" not in dark} == set()


def test_nothing_is_kept_in_cookies() -> None:
    """Cookies would be sent along with requests that a page of another origin makes."""
    assert [path.name for path in SCRIPTS if "document.cookie" in path.read_text()] == []
