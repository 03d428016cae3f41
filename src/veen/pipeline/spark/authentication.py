"""Authentication on Spark's open ports by the secret of the session.

Each Spark process listens on ports of its own. Without a secret it serves broadcasts, tasks and shuffled
rows to every peer, and deserializes what it receives as Java objects; every local user can connect.

In local mode, and on YARN and Kubernetes, Spark generates a secret for each session. The processes of a
standalone cluster share one, which its operator has to configure.
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
# How to configure the secret of a cluster.
_CLUSTER: Final = (
    f"put the lines '{_AUTHENTICATE} true', '{_SECRET} ...' and '{_ENCRYPT} true' into spark-defaults.conf in"
    " SPARK_CONF_DIR, the same for master, workers and here"
)


def _is_on(value: str | None) -> bool:
    """Return whether a setting is true for all of Spark: parts of it read a value with a blank as false."""
    return (value or "").lower() == "true"


def guards(settings: Mapping[str, str]) -> dict[str, str]:
    """Return our settings; traffic cannot be encrypted with authentication turned off."""
    guarded = {_AUTHENTICATE: "true"}
    return {**guarded, _ENCRYPT: "true"} if _is_on(settings.get(_AUTHENTICATE, "true")) else guarded


def secret_for(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return a secret for a local-cluster, which lives as long as this session: Spark generates none for it.

    It is passed when the JVM runs, and never on a command line.
    """
    if not master.startswith("local-cluster") or not _is_on(settings[_AUTHENTICATE]):
        return {}
    return {_SECRET: secrets.token_hex(_SECRET_BYTES)}


def what_is_missing(reason: str) -> str | None:
    """Return what to do if Spark did not start because a cluster has no secret, or another one."""
    if _SECRET in reason:
        return (
            f"a standalone cluster needs a secret: {_CLUSTER}; without keys, and with ports that answer"
            f" everybody, --conf {_AUTHENTICATE}=false does without one"
        )
    # Spark retries for a minute, and then stops its context.
    if "stopped SparkContext" in reason:
        return f"the master rejects this program; it may have another secret, or none: {_CLUSTER}"
    return None


def require_guarded(context: "SparkContext") -> None:
    """Reject a session with open ports, by its settings, even if another program has started it."""
    conf = context.getConf()
    missing = [name for name in (_AUTHENTICATE, _ENCRYPT) if not _is_on(conf.get(name))]
    if not missing:
        return
    needed = " and ".join(f"{name}=true" for name in missing)
    how = f"; {_CLUSTER}" if conf.get("spark.master", "").startswith("spark://") else ""
    raise SparkSessionError(
        "keys are not passed to a Spark session whose ports need no authentication: start it with"
        f" {needed}{how}"
    )
