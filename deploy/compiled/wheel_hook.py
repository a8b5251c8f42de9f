"""The metadata of a compiled build for hatchling: it fits one interpreter, and where its library
is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledHook(BuildHookInterface[Any]):
    """Adds the shared library of the compiled modules, and the tag of the interpreter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it writes the wheel."""
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for library in Path(self.root).glob("*__mypyc*.so"):
            build_data["force_include"][str(library)] = library.name
