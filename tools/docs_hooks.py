"""Hooks of MkDocs: add all decisions to the navigation, so that mkdocs.yml need not list them."""

from pathlib import Path
from typing import Any

_HEADING = "Decisions"


def on_config(config: Any) -> Any:  # noqa: ANN401 - of mkdocs, which is not typed
    """List the decisions under their heading, by number."""
    paths = sorted(Path(config.docs_dir, "adr").glob("*.md"))
    pages = [{_title(path): f"adr/{path.name}"} for path in paths if not path.name.startswith("0000")]
    for item in config.nav:
        if _HEADING in item:
            item[_HEADING] = pages
    return config


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").strip()
