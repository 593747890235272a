"""This module packages spark-ops for `spark-submit`: an archive of its modules, and a script that runs them.

    python -m spark_ops.jobs.submit DIR
    spark-submit --master … --py-files DIR/spark_ops.zip DIR/spark_ops_main.py rollup ROOT

Equal sources give equal archives. The machines of the Spark cluster need pyarrow, but not Fluffle. ROOT must be a
directory that all of them can access under the same path. Source: spark §5.
"""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import spark_ops

ARCHIVE: Final = "spark_ops.zip"
ENTRY: Final = "spark_ops_main.py"

_BEGIN: Final = '''"""The script that spark-submit runs; --py-files names the archive of its modules."""

import sys

from spark_ops.cli.main import main

sys.exit(main())
'''
_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """The two files for `spark-submit`.   archive: for --py-files.   entry: the script."""

    archive: Path
    entry: Path

    def command(self, *arguments: str, master: str = "MASTER") -> list[str]:
        """Return the command line that runs spark-ops with the arguments."""
        return [
            "spark-submit",
            "--master",
            master,
            "--py-files",
            str(self.archive),
            str(self.entry),
            *arguments,
        ]


def package(directory: Path) -> Package:
    """Write both files to a directory, which is created if necessary. Raises: OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    source = Path(spark_ops.__file__).resolve().parent
    made = Package(directory / ARCHIVE, directory / ENTRY)
    with zipfile.ZipFile(made.archive, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*.py")):
            name = zipfile.ZipInfo(str(Path(source.name) / path.relative_to(source)), _TIME)
            name.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(name, path.read_bytes())
    made.entry.write_text(_BEGIN)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files and print the command that runs them. Returns: the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_ops.jobs.submit", description="Write the files that spark-submit needs."
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    directory = parser.parse_args(argv).directory
    try:
        made = package(directory)
    except OSError as error:
        print(f"{directory}: {error.strerror or error}", file=sys.stderr)
        return 2
    print(" ".join(made.command("rollup", "ROOT")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
