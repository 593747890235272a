"""A library, loaded into a process, makes its time of day wrong by what a test says; its other clocks stay right."""

import mmap
import struct
from pathlib import Path
from typing import Final

from tests.kit.faulty_disk import built

SOURCE: Final = Path(__file__).with_name("clock_shim.c")


class ShiftedClock:
    """The time of day of one process.   directory: for the library and its file.

    Give `environment` to the process, with `LD_PRELOAD` joined to that of other libraries by a colon.
    """

    def __init__(self, directory: Path) -> None:
        """Build the library. Raises: NoCompiler."""
        self._place = directory / "clock"
        self._place.mkdir(parents=True)
        library = self._place / "shim.so"
        library.write_bytes(built(SOURCE))
        file = self._place / "error"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._error = mmap.mmap(opened.fileno(), 8)
        self.environment: Final = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(file)}

    def shift(self, error_s: float) -> None:
        """Make the clock wrong by so many seconds from now on; 0: it is right."""
        self._error[:] = struct.pack("=q", round(error_s * 1e9))
