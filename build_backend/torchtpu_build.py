"""The build backend: maturin, with the torch to build against.

torchtpu's C++ shim uses torch's C++ interface, so it must be built against the torch version that it will run
with. pip builds in an isolated environment with another torch. So this backend looks for the torch of the
environment that it installs into, and only requires one if there is none.

Run as a script, it prints the same settings as shell exports, for the Makefile.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import shlex
import site
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

TORCH_FALLBACK = "torch>=2.11,<2.16"
# "skip" installs only metadata and a path entry, for developers who build the extension with cargo.
NATIVE = "TORCHTPU_NATIVE"

ConfigSettings = dict[str, Any] | None


def _user_site_packages() -> list[Path]:
    """The package folders of the environment to install into, also inside pip's isolated build environment.

    Isolation uses PYTHONPATH and a sitecustomize, which do not change `sys.prefix`, and so not `sysconfig`.
    """
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"]]
    if sys.prefix == sys.base_prefix:  # not a virtual environment: `pip install --user` is possible
        folders.append(site.getusersitepackages())
    return [Path(folder) for folder in dict.fromkeys(folders)]


def _package_directory(name: str) -> Path | None:
    """The directory of a package that this process can import. Does not import it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _user_torch() -> Path | None:
    for site_packages in _user_site_packages():
        torch = site_packages / "torch"
        if (torch / "include" / "c10").is_dir():
            return torch
    return None


def _find_torch() -> Path | None:
    chosen = os.environ.get("TORCHTPU_TORCH_DIR")
    if chosen:
        return Path(chosen)
    return _user_torch() or _package_directory("torch")


def environment() -> dict[str, str]:
    """The variables that the crates' build scripts read. The user's settings take precedence."""
    settings: dict[str, str] = {}
    torch = _find_torch()
    if torch is not None:
        settings["TORCHTPU_TORCH_DIR"] = str(torch)
    clang = _package_directory("clang")
    if clang is not None and (clang / "native").is_dir():
        settings["LIBCLANG_PATH"] = str(clang / "native")
    plugins = _package_directory("xla_plugins")
    if plugins is not None:
        headers = sorted(plugins.glob("xla_cpu_pjrt/**/pjrt_c_api.h"))
        if headers:
            settings["TORCHTPU_PJRT_HEADER"] = str(headers[0])
    # The same interpreter for every cargo call: another one would rebuild pyo3.
    settings["PYO3_PYTHON"] = sys.executable
    return {name: os.environ.get(name, value) for name, value in settings.items()}


def _prepare() -> None:
    settings = environment()
    if "TORCHTPU_TORCH_DIR" not in settings:
        raise RuntimeError(
            "torchtpu is built against torch, but torch was not found: `pip install torch` first, or set "
            "TORCHTPU_TORCH_DIR to the directory of an installed torch package"
        )
    print(f"torchtpu: building against {settings['TORCHTPU_TORCH_DIR']}", file=sys.stderr)
    os.environ.update(settings)


def _requires(base: list[str]) -> list[str]:
    return base if _find_torch() is not None else [*base, TORCH_FALLBACK]


def _put_maturin_on_path() -> None:
    """Without isolation, maturin is next to the interpreter, which may not be on PATH."""
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])


_put_maturin_on_path()


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    import maturin

    return _requires(maturin.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    import maturin

    return _requires(maturin.get_requires_for_build_editable(config_settings))


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    import maturin

    return list(maturin.get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    import maturin

    name = str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))
    metadata = Path(metadata_directory) / name / "METADATA"
    metadata.write_bytes(_pin_torch(metadata.read_bytes()))
    return name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    import maturin

    _prepare()
    name = str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))
    _pin_torch_in_wheel(Path(wheel_directory) / name)
    return name


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    import maturin

    return str(maturin.build_sdist(sdist_directory, config_settings))


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    if os.environ.get(NATIVE) == "skip":
        return _editable_without_native(Path(wheel_directory))
    import maturin

    _prepare()
    name = str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))
    _pin_torch_in_wheel(Path(wheel_directory) / name)
    return name


def _pin_torch(metadata: bytes) -> bytes:
    """Makes the metadata require the torch version that the extension is built for."""
    torch = _find_torch()
    if torch is None:
        return metadata
    version = re.search(r"^__version__ = '(\d+\.\d+)", (torch / "version.py").read_text(), re.MULTILINE)
    if version is None:
        raise RuntimeError(f"{torch / 'version.py'} names no version")
    return re.sub(rb"(?m)^Requires-Dist: torch\b[^;\n]*", f"Requires-Dist: torch=={version[1]}.*".encode(), metadata)


def _pin_torch_in_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    for name in files:
        if name.endswith(".dist-info/METADATA"):
            files[name] = _pin_torch(files[name])
    _write_wheel(path, files)


def _editable_without_native(wheel_directory: Path) -> str:
    """A wheel with metadata and one .pth file that points to python/."""
    import tempfile

    source = Path(__file__).resolve().parent.parent / "python"
    with tempfile.TemporaryDirectory() as scratch:
        information = Path(scratch) / prepare_metadata_for_build_wheel(scratch)
        files = {
            f"{information.name}/{path.relative_to(information).as_posix()}": path.read_bytes()
            for path in sorted(information.rglob("*"))
            if path.is_file()
        }
    files[f"{information.name}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: torchtpu_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files["torchtpu.pth"] = f"{source}\n".encode()
    name = f"{information.name.removesuffix('.dist-info')}-py3-none-any.whl"
    _write_wheel(wheel_directory / name, files)
    return name


def _write_wheel(path: Path, files: dict[str, bytes]) -> None:
    """Writes a wheel with these files and their RECORD."""
    files = {name: content for name, content in files.items() if not name.endswith(".dist-info/RECORD")}
    information = next(name.split("/")[0] for name in files if name.endswith(".dist-info/WHEEL"))
    record = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    record.append(f"{information}/RECORD,,\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in [*files.items(), (f"{information}/RECORD", "".join(record).encode())]:
            # A fixed date, so that equal contents give equal wheels. It is the first date that a zip file can have.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, content, compresslevel=9)


if __name__ == "__main__":
    for variable, text in environment().items():
        print(f"export {variable}={shlex.quote(text)}")
