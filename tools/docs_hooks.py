"""What mkdocs.yml cannot express: all decisions are in the navigation, without being listed one by one."""

from pathlib import Path
from typing import Any

_HEADING = "Decisions"


def on_config(config: Any) -> Any:  # noqa: ANN401 - of mkdocs, which is not typed
    """List the decisions under their heading, by number."""
    places = sorted(Path(config.docs_dir, "adr").glob("*.md"))
    found = [{_title(place): f"adr/{place.name}"} for place in places if not place.name.startswith("0000")]
    for item in config.nav:
        if _HEADING in item:
            item[_HEADING] = found
    return config


def _title(place: Path) -> str:
    return place.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").strip()
