"""Content of chunk files: read completely, one at a time, and decompressed if needed."""

import bz2
from collections.abc import Iterator

from veen.core.objects.entry import EntryHeader
from veen.storage.fsck.context import Context
from veen.storage.fsck.files import ChunkFile, LabelFiles
from veen.storage.fsck.report import Reason, wrong


def read_chunk(context: Context, file: ChunkFile) -> bytes:
    """Return the framed entries of a chunk."""
    data = context.source.read(file.path)
    if file.compressed:
        return _unpacked(context, file.path, data)
    if file.twin is not None and _unpacked(context, file.twin, context.source.read(file.twin)) != data:
        raise wrong(file.twin, 0, Reason.COMPRESSION, f"not the compressed form of {file.path}")
    return data


def _unpacked(context: Context, path: str, data: bytes) -> bytes:
    """Return the content of exactly one bzip2 stream, bounded by the maximum size of a chunk."""
    max_bytes = max(rule.max_bytes for rule in context.rules) + context.limits.max_cap_bytes
    reader = bz2.BZ2Decompressor()
    try:
        content = reader.decompress(data, max_length=max_bytes + 1)
    except (OSError, ValueError) as error:
        raise wrong(path, 0, Reason.COMPRESSION, f"not a bzip2 stream: {error}") from error
    if not reader.eof:
        reason = (
            "the compressed stream is truncated"
            if len(content) <= max_bytes
            else f"holds more than {max_bytes} bytes"
        )
        raise wrong(path, 0, Reason.COMPRESSION, reason)
    if reader.unused_data:
        raise wrong(
            path, len(data) - len(reader.unused_data), Reason.COMPRESSION, "bytes after the compressed stream"
        )
    return content


def stored_receipts(context: Context, files: LabelFiles) -> Iterator[tuple[int, bytes]]:
    """Yield the sequence numbers and receipts in the chunks of an undamaged label."""
    for file in files.chunks:
        data = read_chunk(context, file)
        at = 0
        while at < len(data):
            header = EntryHeader.decode(data, at)
            at += header.entry_len
            yield header.stream_seq, data[at - header.receipt_len : at]
