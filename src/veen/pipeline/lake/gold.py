"""The gold layer: states of overlays over the streams of a lake."""

from typing import Final

import pyarrow as pa

#: By table.
GOLD_TABLES: Final[dict[str, pa.Schema]] = {}
