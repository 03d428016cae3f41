"""The floor: one verification, one signature and the hashes of a message, in bare libsodium, on all cores."""

import hashlib
import multiprocessing
import os
from time import perf_counter
from typing import Any

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair


def _work(size: int, count: int, results: Any, start: Any) -> None:  # noqa: ANN401 - of multiprocessing
    public, secret = crypto_sign_seed_keypair(os.urandom(32))
    digest, body = os.urandom(32), os.urandom(size)
    signed = crypto_sign(digest, secret)
    sha = hashlib.sha256
    start.wait()
    began = perf_counter()
    for _ in range(count):
        crypto_sign_open(signed, public)
        crypto_sign(digest, secret)
        # ct_hash, the client's signature input, the entry; the leaf, the hub's signature input, an MMR node.
        for data in (body, body, body, digest, digest, digest):
            sha(data).digest()
    results.put(perf_counter() - began)


def floor_rate(size: int, count: int) -> float:
    """Return the messages per second of the bare primitives."""
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    start = context.Barrier(cores)
    workers = [context.Process(target=_work, args=(size, count, results, start)) for _ in range(cores)]
    for worker in workers:
        worker.start()
    times: list[float] = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(count / seconds for seconds in times)
