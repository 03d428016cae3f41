"""Spark's open ports: whoever is to be answered there has to know the secret of the session.

Each process of Spark listens on ports of its own. Without a secret it gives broadcasts, tasks and shuffled
rows to whoever connects, and takes what it is sent for objects of Java; on this machine any user can connect.

On this machine, and on YARN and Kubernetes, Spark draws a secret for each session. The processes of a
standalone cluster have one in common, which whoever runs the cluster has to give them.
"""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from veen.pipeline.errors import SparkSessionError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["guards", "require_guarded", "secret_for", "what_is_missing"]

_AUTHENTICATE: Final = "spark.authenticate"
_SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
_ENCRYPT: Final = "spark.network.crypto.enabled"
_SECRET_BYTES: Final = 32
#: What to write, and where, so that a cluster has a secret.
_CLUSTER: Final = (
    f"put the lines '{_AUTHENTICATE} true', '{_SECRET} ...' and '{_ENCRYPT} true' into spark-defaults.conf in"
    " SPARK_CONF_DIR, the same for master, workers and here"
)


def _is_on(value: str | None) -> bool:
    """Tell whether a setting is true, wherever Spark reads it: in some places a blank makes it false."""
    return (value or "").lower() == "true"


def guards(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ours; what is sent can not be encrypted if authentication is turned off."""
    found = {_AUTHENTICATE: "true"}
    return {**found, _ENCRYPT: "true"} if _is_on(given.get(_AUTHENTICATE, "true")) else found


def secret_for(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the secret of a cluster that begins and ends with this session, for which nobody else makes one.

    It is handed over when the JVM runs, and never stands on a command line.
    """
    if not master.startswith("local-cluster") or not _is_on(settings[_AUTHENTICATE]):
        return {}
    return {_SECRET: secrets.token_hex(_SECRET_BYTES)}


def what_is_missing(reason: str) -> str | None:
    """Return what to do, if Spark did not start because a cluster has no secret, or has another one."""
    if _SECRET in reason:
        return (
            f"a standalone cluster needs a secret: {_CLUSTER}; without keys, and with ports that answer"
            f" everybody, --conf {_AUTHENTICATE}=false does without one"
        )
    # It asks for a minute, and then stops what it has begun.
    if "stopped SparkContext" in reason:
        return f"the master rejects this program; it may have another secret, or none: {_CLUSTER}"
    return None


def require_guarded(context: "SparkContext") -> None:
    """Refuse a session whose ports answer everybody; by what it was started with, whoever has started it."""
    conf = context.getConf()
    missing = [name for name in (_AUTHENTICATE, _ENCRYPT) if not _is_on(conf.get(name))]
    if not missing:
        return
    needed = " and ".join(f"{name}=true" for name in missing)
    how = f"; {_CLUSTER}" if conf.get("spark.master", "").startswith("spark://") else ""
    raise SparkSessionError(
        "keys are not given to a session of Spark whose ports answer everybody: it has to be started with"
        f" {needed}{how}"
    )
