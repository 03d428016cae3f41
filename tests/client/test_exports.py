"""What the package offers, and what it costs to ask for it."""

import subprocess
import sys

import veen.client


def test_every_public_name_is_there() -> None:
    found = {name: getattr(veen.client, name) for name in veen.client.__all__}
    assert all(item.__module__.startswith("veen.client.") for item in found.values())
    assert not hasattr(veen.client, "nothing")


def test_a_blocking_program_loads_nothing_of_asyncio() -> None:
    code = "import sys; from veen.client import Client; print({'httpx', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
