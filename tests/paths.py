"""Where the repository is, for tests that read its pages or start programs in it."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
