"""The recorder rows of the report: the cost of an event for an application's thread, and the throughput."""

import logging
import logging.handlers
from collections.abc import Callable, Iterator
from os import urandom
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from time import perf_counter, perf_counter_ns, time

from bench.hub.servers import hub
from bench.measure import Result
from bench.storage import scratch
from veen.client.client import Client
from veen.client.home.directory import ClientHome
from veen.client.keys.keystore import Secrets
from veen.client.models import SendOptions
from veen.client.send import send_drafts
from veen.recorder.event import event_draft
from veen.recorder.feed.feed import Feed
from veen.recorder.inputs.logging_handler import RecorderHandler

_MOST_US = 50.0
_PAYLOAD = {"method": "GET", "path": "/things/17", "status": 200, "ms": 12.5, "cached": False}
_TURNS = 20


def measure_recorder(events: int) -> Iterator[Result]:
    """Measure the calls of a feed, and its throughput."""
    with scratch() as root, hub(root / "hub") as running:
        home = root / "client"
        ClientHome.create(home, Secrets.generate(urandom, int(time())), now=int(time()))
        url = f"http://127.0.0.1:{running.port}"
        yield from _calls(home, url, events)
        yield from _throughput(home, url, events)


def _logger(name: str, handler: logging.Handler) -> Callable[[], None]:
    log = logging.getLogger(f"bench.{name}")
    log.propagate = False
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    return lambda: log.info("%s %s gave %d in %.1f ms", "GET", "/things/17", 200, 12.5)


def _calls(home: Path, url: str, events: int) -> Iterator[Result]:
    """Time each call; the subjects alternate."""
    with Feed.open(home, url, stream="record/app/bench") as feed:
        works: dict[str, Callable[[], None]] = {
            "logging, nothing done": _logger("null", logging.NullHandler()),
            "logging, a queue": _logger("queue", logging.handlers.QueueHandler(SimpleQueue())),
            "RecorderHandler": _logger("recorder", RecorderHandler(feed=feed, stream="record/app/bench")),
            "Feed.record": lambda: feed.record("http.request", _PAYLOAD),
        }
        times: dict[str, list[int]] = {name: [] for name in works}
        for _ in range(_TURNS):
            for name, work in works.items():
                for _ in range(events // _TURNS):
                    start = perf_counter_ns()
                    work()
                    times[name].append(perf_counter_ns() - start)
        floor = "logging, a queue"
        for name, calls in times.items():
            ours = name in ("RecorderHandler", "Feed.record")
            for what, us in (("median", median(calls) / 1000), ("99 %", _share(calls, 0.99) / 1000)):
                beside = median(times[floor]) if what == "median" else _share(times[floor], 0.99)
                judged = ours and what == "median"  # the rest is caused by other threads
                target, met = (f"<= {_MOST_US:g} us", us <= _MOST_US) if judged else ("", None)
                yield Result(
                    f"{name}, {what}", round(us, 2), floor, round(us * 1000 / beside, 3), target, met
                )


def _share(times: list[int], share: float) -> int:
    return sorted(times)[int(len(times) * share)]


def _throughput(home: Path, url: str, events: int) -> Iterator[Result]:
    """Deliver events by a feed, compared with a client that sends the same number; per event."""
    now = int(time())
    with Client.open(home, url, rotation=None) as client:
        drafts = [
            event_draft("http.request", subject_id="s", origin="o", event_time=now, payload=_PAYLOAD)
            for _ in range(events)
        ]
        start = perf_counter()
        for _ in send_drafts(
            client, "record/app/plain", drafts, SendOptions(keep_key=True, store_body=False)
        ):
            pass
        plain = (perf_counter() - start) / events
    with Feed.open(home, url, stream="record/app/fed") as feed:
        start = perf_counter()
        for _ in range(events):
            feed.record("http.request", _PAYLOAD)
        assert feed.flush(600)
        fed = (perf_counter() - start) / events
    beside = "Client.send_many"
    yield Result("events of a feed, delivered", round(fed * 1e6, 2), beside, round(fed / plain, 3), "", None)
