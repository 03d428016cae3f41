"""Reader keys for Spark tasks: sealed in a broadcast by the driver, opened in the tasks.

Spark writes a broadcast to files, on the driver and on every executor. Their content is encrypted here under
a random key of the job, so that files left by a killed job are of no use. In local mode that key never
reaches Spark: tasks get the path of a file in memory. To the workers of a cluster it is sent with the code of
the tasks, in memory too. Spark has code and broadcasts in one store, and serves it to every peer that knows
the secret of the session: without such a secret no keys are shared (``spark.authentication``). Signing keys
stay on the driver.
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

# The size from which PySpark sends a task's function through a file.
_LARGE_TASK: Final = "spark.broadcast.UDFCompressionThreshold"
_NEVER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Keys as sent to tasks: the sealed broadcast, and the key that opens it."""

    _sealed: "Broadcast[bytes]" = field(repr=False)
    # The key itself; in local mode, the file with the key.
    _wrapping: bytes | Path = field(repr=False)

    def open(self) -> ReaderKeys:
        """Return the keys. Called in a task, which drops them when it ends."""
        wrapping = self._wrapping if isinstance(self._wrapping, bytes) else self._wrapping.read_bytes()
        # Sealed by our own driver under a key that only this job has: what decrypts is safe to unpickle.
        keys = pickle.loads(Aead(wrapping).decrypt(self._sealed.value))  # noqa: S301
        assert isinstance(keys, ReaderKeys)
        return keys


def _keep_off_disk(context: "SparkContext") -> None:
    """Have tasks of any size sent in memory: PySpark would write large ones to a file.

    The key that opens the sealed keys is sent with the task, and must not be on disk beside them.
    """
    context._jsc.sc().conf().set(_LARGE_TASK, f"{_NEVER}b")  # noqa: SLF001
    jvm = context._jvm  # noqa: SLF001
    if jvm is None or jvm.PythonUtils.getBroadcastThreshold(context._jsc) != _NEVER:  # noqa: SLF001
        raise KeystoreError(f"keys are not sent to tasks: Spark rejects the setting {_LARGE_TASK}")


@contextmanager
def _in_memory(secret: bytes) -> Iterator[Path]:
    """Put a secret into a file in no directory: processes of this user open it through this process.

    It vanishes with this process, however that ends, and needs no cleanup. A file in /dev/shm or
    XDG_RUNTIME_DIR would be removed when its owner logs out, although the job continues.
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
    """Share the reader keys with the tasks of a job, for its duration."""
    from veen.pipeline.spark.authentication import require_guarded
    from veen.pipeline.spark.environment import is_local

    context = spark.sparkContext
    require_guarded(context)
    wrapping = os.urandom(Aead.KEY_SIZE)
    sealed = bytes(Aead(wrapping).encrypt(pickle.dumps(keyring.reader_keys())))
    with ExitStack() as stack:
        if is_local(context.getConf().get("spark.master", "")):
            wrapping_source: bytes | Path = stack.enter_context(_in_memory(wrapping))
        else:
            _keep_off_disk(context)
            wrapping_source = wrapping
        broadcast = context.broadcast(sealed)
        stack.callback(broadcast.destroy, blocking=True)
        yield SharedKeys(broadcast, wrapping_source)
