"""Horosphere: deep learning in any geometry."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horosphere.explorer import explore as explore

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`horosphere.explore` is loaded when it is asked for: `import horosphere` stays light."""
    if name == "explore":
        from horosphere.explorer import explore

        return explore
    raise AttributeError(f"module 'horosphere' has no attribute {name!r}")
