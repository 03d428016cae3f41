"""Names that a package loads at first use."""

import subprocess
import sys
from pathlib import Path

PACKAGE = """
from veen.stdx.lazy_exports import lazy_exports
eager = 1
__all__ = ["value", "other"]
__getattr__, __dir__ = lazy_exports(__name__, {"inner.module": ("value", "other")})
"""


def run(tmp_path: Path, code: str) -> str:
    inner = tmp_path / "lazy_package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text(PACKAGE)
    (inner / "__init__.py").write_text("")
    (inner / "module.py").write_text("print('loaded'); value = 'v'; other = 'o'")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_name_is_loaded_when_it_is_used(tmp_path: Path) -> None:
    code = "import lazy_package as p; print('imported'); print(p.value, p.other, p.eager)"
    assert run(tmp_path, code) == "imported\nloaded\nv o 1\n"


def test_names_can_be_imported(tmp_path: Path) -> None:
    assert run(tmp_path, "from lazy_package import other; print(other)") == "loaded\no\n"


def test_a_star_imports_what_is_listed(tmp_path: Path) -> None:
    assert run(tmp_path, "from lazy_package import *; print(value, other)") == "loaded\nv o\n"


def test_names_are_listed_without_loading_them(tmp_path: Path) -> None:
    code = "import lazy_package as p; print({'value', 'other', 'eager', '__all__'} <= set(dir(p)))"
    assert run(tmp_path, code) == "True\n"


def test_another_name_is_an_attribute_error(tmp_path: Path) -> None:
    code = (
        "import lazy_package as p\n"
        "try: p.inexistent\n"
        "except AttributeError as error: print(error)\n"
        "print(hasattr(p, 'inexistent'))"
    )
    assert run(tmp_path, code) == "module 'lazy_package' has no attribute 'inexistent'\nFalse\n"
