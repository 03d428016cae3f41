"""Reader keys on their way to Spark: sealed in a broadcast by the driver, opened in the tasks.

Spark writes a broadcast to files, of the driver and of every executor. What is in them is sealed here, under
a key that is drawn for the job: what a killed job leaves on a disk is of no use. On this machine that key
never reaches Spark: tasks are told which file it is in, and that file is in memory. To the workers of a
cluster it travels with the code of the tasks, in memory too. Spark has code and broadcasts in one store, and
gives what is in it to whoever knows the secret of the session: where there is none, no keys are shared
(``spark.authentication``). Keys that sign stay with the driver.
"""

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacl.secret import Aead

from veen.client.errors import KeystoreError
from veen.pipeline.open.keyring import Keyring, ReaderKeys

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.sql import SparkSession

#: From how many bytes on PySpark sends what a task is to do through a file.
_LARGE_TASK: Final = "spark.broadcast.UDFCompressionThreshold"
_NEVER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Keys as tasks get them: the sealed broadcast, and what opens it."""

    _sealed: "Broadcast[bytes]" = field(repr=False)
    #: The key itself; on this machine, the file that it is in.
    _wrapping: bytes | Path = field(repr=False)

    def open(self) -> ReaderKeys:
        """Return the keys; in a task, which forgets them when it ends."""
        wrapping = self._wrapping if isinstance(self._wrapping, bytes) else self._wrapping.read_bytes()
        # Sealed by our own driver, under a key that only this job has: what opens is ours.
        found = pickle.loads(Aead(wrapping).decrypt(self._sealed.value))  # noqa: S301
        assert isinstance(found, ReaderKeys)
        return found


def _keep_off_disk(context: "SparkContext") -> None:
    """Let tasks be sent in memory, however large they are: PySpark would put large ones into a file.

    What opens the sealed keys travels with the task, and must not lie beside them.
    """
    context._jsc.sc().conf().set(_LARGE_TASK, f"{_NEVER}b")  # noqa: SLF001
    jvm = context._jvm  # noqa: SLF001
    if jvm is None or jvm.PythonUtils.getBroadcastThreshold(context._jsc) != _NEVER:  # noqa: SLF001
        raise KeystoreError(f"keys are not sent to tasks: Spark rejects the setting {_LARGE_TASK}")


@contextmanager
def _in_memory(secret: bytes) -> Iterator[Path]:
    """Have a secret in a file that is in no directory: processes of this user reach it through this process.

    It is gone when this process is, however that ends, and leaves nothing for anybody to remove. A file in
    /dev/shm or in XDG_RUNTIME_DIR is removed when its owner logs out, though the job goes on.
    """
    descriptor = os.memfd_create("veen-keys")
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, secret)
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextmanager
def sharing(spark: "SparkSession", keyring: Keyring) -> Iterator[SharedKeys]:
    """Let the tasks of a job have the keys that read, for as long as it takes."""
    from veen.pipeline.spark.authentication import require_guarded
    from veen.pipeline.spark.environment import is_local

    context = spark.sparkContext
    require_guarded(context)
    wrapping = os.urandom(Aead.KEY_SIZE)
    sealed = bytes(Aead(wrapping).encrypt(pickle.dumps(keyring.reader_keys())))
    with ExitStack() as stack:
        if is_local(context.getConf().get("spark.master", "")):
            opens: bytes | Path = stack.enter_context(_in_memory(wrapping))
        else:
            _keep_off_disk(context)
            opens = wrapping
        sent = context.broadcast(sealed)
        stack.callback(sent.destroy, blocking=True)
        yield SharedKeys(sent, opens)
