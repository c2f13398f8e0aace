"""Plugins in C that stand before the real one, and change what it does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from torchtpu import _C


def build_plugin(source: Path, folder: Path, name: str = "plugin.so") -> Path:
    """Compiles a plugin into a folder, with `PLUGIN` defined as the path of the real one. Skips the test where there
    is no C compiler, or no header."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    behind = Path(_C.platform_info()["plugin"])
    header = behind.parent / "include/pjrt_c_api.h"
    if compiler is None or not header.is_file():
        pytest.skip("needs a C compiler and the header of the plugin")
    built = folder / name
    folders = [f"-I{header.parent}", f"-I{Path(__file__).parent}"]
    options = ["-shared", "-fPIC", "-pthread", *folders, f'-DPLUGIN="{behind}"', "-o", built]
    subprocess.run([compiler, *options, source, "-ldl"], check=True)
    return built


def build_plugin_of(code: str, folder: Path) -> Path:
    """Compiles the text of a plugin. See `build_plugin`."""
    source = folder / "plugin.c"
    source.write_text(code)
    return build_plugin(source, folder)
