"""The decorator `override`, which marks a method that overrides one of a base class.

mypy checks that the base class has such a method. Python has the decorator in `typing` from 3.12 on. A node installs
no package for it: at run time this one returns the method as it is.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override as override
else:
    T = TypeVar("T")

    def override(method: T) -> T:
        """Return the method as it is."""
        return method
