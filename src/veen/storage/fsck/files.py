"""The files of a chunk directory, by label."""

from dataclasses import dataclass, field

from veen.core.data_dir import paths
from veen.core.data_dir.paths import Domain, FileKind, FileName
from veen.core.types import Label
from veen.storage.fsck.source import Source


@dataclass(slots=True)
class ChunkFile:
    """A chunk as its name describes it; ``end`` is None while it is open."""

    path: str
    start: int
    end: int | None
    compressed: bool = False
    # The compressed form of the same chunk, if compression was interrupted before it removed one of the two.
    twin: str | None = None


@dataclass(slots=True)
class LabelFiles:
    """The files of one label in a directory."""

    domain: Domain
    label: Label
    chunks: list[ChunkFile] = field(default_factory=list)
    tombstones: dict[tuple[int, int], str] = field(default_factory=dict)
    # Tombstones of chunks that still exist: pruning was interrupted, and the chunks are checked.
    interrupted: list[str] = field(default_factory=list)
    summaries: dict[tuple[int, int], str] = field(default_factory=dict)
    peaks: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)
    nodes: str | None = None
    index: str | None = None
    # Any of the files, for findings about the label.
    some_path: str = ""

    def add(self, path: str, name: FileName) -> None:
        self.some_path = path
        start, end = name.start_seq or 0, name.end_seq or 0
        match name.kind:
            case FileKind.CHUNK:
                self.chunks.append(ChunkFile(path, start, end, name.compressed))
            case FileKind.OPEN_CHUNK:
                self.chunks.append(ChunkFile(path, start, None))
            case FileKind.TOMBSTONE:
                self.tombstones[start, end] = path
            case FileKind.SUMMARY:
                self.summaries[start, end] = path
            case FileKind.PEAKS:
                self.peaks[end] = path
            case FileKind.CHECKPOINT:
                self.checkpoints[end] = path
            case FileKind.NODES:
                self.nodes = path
            case FileKind.CHECKPOINT_INDEX:
                self.index = path

    def arrange(self) -> None:
        """Sort chunks; pair both forms of one chunk; of two with the same start, the longer comes first."""
        self.chunks.sort(key=lambda item: (item.start, item.end is None, -(item.end or 0), item.compressed))
        single: list[ChunkFile] = []
        for item in self.chunks:
            before = single[-1] if single else None
            if (
                before is not None
                and item.compressed
                and (before.start, before.end) == (item.start, item.end)
            ):
                before.twin = item.path
            else:
                single.append(item)
        self.chunks = single
        for item in single:
            if item.end is not None and (item.start, item.end) in self.tombstones:
                self.interrupted.append(self.tombstones.pop((item.start, item.end)))


@dataclass(slots=True)
class Directory:
    """A chunk directory: its labels, and paths of unknown files."""

    labels: dict[Label, LabelFiles] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def read_label(source: Source, domain: Domain, label: Label) -> LabelFiles:
    """List the files of one label."""
    return read_directory(source, domain).labels.get(label) or LabelFiles(domain, label)


def read_directory(source: Source, domain: Domain) -> Directory:
    """List a chunk directory."""
    directory = Directory()
    for name in source.names(domain):
        if name.endswith(".tmp"):  # an interrupted write, without meaning
            continue
        path = f"{domain}/{name}"
        parsed = paths.parse(name)
        if parsed is None:
            directory.unknown.append(path)
            continue
        files = directory.labels.get(parsed.label)
        if files is None:
            files = directory.labels[parsed.label] = LabelFiles(domain, parsed.label)
        files.add(path, parsed)
    for files in directory.labels.values():
        files.arrange()
    return directory
