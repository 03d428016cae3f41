"""Files of tables, read only if they are what was committed."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from veen.pipeline.lake.commits import FileFact
from veen.pipeline.lake.errors import DamagedLakeError


@contextmanager
def open_committed(root: Path, fact: FileFact) -> Iterator[pq.ParquetFile]:
    """Open a file whose hash and number of rows are those of its commit; raise if they are not.

    What is compared and what is read is one open file, whatever happens to its name.
    """
    try:
        with (root / fact.path).open("rb") as raw:
            if hashlib.file_digest(raw, "sha256").hexdigest() != fact.sha256:
                raise DamagedLakeError(f"{fact.path} is not the file that was committed: its hash differs")
            raw.seek(0)
            with pq.ParquetFile(raw) as file:
                if file.metadata.num_rows != fact.rows:
                    raise DamagedLakeError(f"{fact.path} has {file.metadata.num_rows} rows, not {fact.rows}")
                yield file
    except FileNotFoundError as error:
        raise DamagedLakeError(f"{fact.path} can not be read: {error.strerror}") from None
    except pa.ArrowException as error:
        raise DamagedLakeError(f"{fact.path} can not be read: {str(error).splitlines()[0]}") from None
