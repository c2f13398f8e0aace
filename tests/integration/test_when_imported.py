"""`torchtpu.when_imported`, which waits for the user's imports."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from torchtpu.when_imported import call_when_imported

NAME = "a_module_of_a_user"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"{NAME}.py"
    path.write_text("number = 1\n")
    finders = list(sys.meta_path)
    yield path
    sys.modules.pop(NAME, None)
    sys.meta_path[:] = finders


def test_the_function_is_called_once_after_the_module_has_run(source: Path) -> None:
    numbers: list[int] = []
    call_when_imported(NAME, lambda module: numbers.append(module.number))
    assert importlib.util.find_spec(NAME) is not None  # a library that only looks for it
    assert numbers == []
    module = importlib.import_module(NAME)
    assert numbers == [1]
    assert module.__spec__ is not None
    assert module.__loader__ is module.__spec__.loader
    importlib.reload(module)
    assert numbers == [1]


def test_several_functions_wait_for_one_module(source: Path) -> None:
    order: list[str] = []
    call_when_imported(NAME, lambda module: order.append("first"))
    call_when_imported(NAME, lambda module: order.append("second"))
    importlib.import_module(NAME)
    assert order == ["first", "second"]


def test_a_module_that_is_there_is_not_waited_for(source: Path) -> None:
    module, seen = importlib.import_module(NAME), list[ModuleType]()
    call_when_imported(NAME, seen.append)
    assert seen == [module]


def test_an_import_that_fails_may_succeed_later(source: Path) -> None:
    seen: list[ModuleType] = []
    call_when_imported(NAME, seen.append)
    source.write_text("raise ValueError('not yet')\n")
    with pytest.raises(ValueError, match="not yet"):
        importlib.import_module(NAME)
    source.write_text("number = 'at last'\n")
    importlib.invalidate_caches()
    assert importlib.import_module(NAME) in seen


def test_a_module_that_does_not_exist(source: Path) -> None:
    source.unlink()
    call_when_imported(NAME, lambda module: pytest.fail("there is no such module"))
    assert importlib.util.find_spec(NAME) is None
