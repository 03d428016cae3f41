"""Attachments: content ids, their root, and sealing them with a message (001 section 4.6)."""

from collections.abc import Iterator

from vectors.generators import fixed, samples
from vectors.generators.fixed import ZERO_32, h, ht, u64
from vectors.generators.hpke_steps import Context, Setup, xchacha
from vectors.generators.scenario import ATT_ROOT, Fields, Scenario, ask


def _peaks(coids: list[bytes]) -> list[bytes]:
    """Return the peaks over coids by increasing height."""
    peaks: list[bytes] = []
    for number, coid in enumerate(coids, start=1):
        node, rest = coid, number
        while rest & 1 == 0:
            node, rest = ht("veen/att-node", peaks.pop(0) + node), rest >> 1
        peaks.insert(0, node)
    return peaks


def roots() -> Scenario:
    """Return roots over coids."""
    s = Scenario(
        "attachments/root",
        "att_root hashes the peaks over the coids, however many there are, one and none too.",
    )
    coids = [h(f"attachment {index}".encode()) for index in range(17)]
    for count in (*range(10), 16, 17):
        s.ok(
            f"{count} attachments",
            "att_root",
            intermediate={"peaks": _peaks(coids[:count])},
            coids=coids[:count],
        )
    two = [h(b"cipher-1"), h(b"cipher-2")]
    s.ok("published: two", "att_root", intermediate={"peaks": _peaks(two)}, coids=two)
    s.ok("order counts", "att_root", coids=two[::-1])
    s.ok("the same attachment twice", "att_root", coids=[two[0], two[0]])
    return s


def _steps(attachments: list[bytes]) -> Fields:
    setup = Setup.sender(fixed.READER_PK, fixed.EPHEMERAL_SK)
    aad = Context(fixed.PROFILE_ID, fixed.LABEL, fixed.CLIENT_ID).aad
    keys = [setup.export(b"veen/att-k" + u64(index)) for index in range(len(attachments))]
    nonces = [ht("veen/att-nonce", aad + u64(index))[:24] for index in range(len(attachments))]
    sealed = [
        xchacha(key, nonce, b"", item) for key, nonce, item in zip(keys, nonces, attachments, strict=True)
    ]
    return {"aad": aad, "att_keys": keys, "att_nonces": nonces, "peaks": _peaks([h(item) for item in sealed])}


def sealing() -> Scenario:
    """Return messages with attachments."""
    s = Scenario(
        "attachments/seal",
        "Each attachment has its own exported key and a nonce from the aad and its index, from 0; its "
        "coid hashes it.",
    )
    items = [b"first", b"", b"third attachment", bytes(100), b"5"]
    for count in (0, 1, 2, 3, 5):
        given = s.ok(
            f"{count} attachments",
            "seal_attachments",
            intermediate=_steps(items[:count]),
            **samples.seal_request(),
            attachments=items[:count],
        )
        msg = samples.signed(bytes.fromhex(given["ciphertext"]))
        s.ok(f"{count} attachments: open", "open", recipient_sk=fixed.READER_SK, msg=msg, pad_block=0)
    same = [b"same", b"same"]
    s.ok(
        "equal attachments have different coids",
        "seal_attachments",
        intermediate=_steps(same),
        **samples.seal_request(),
        attachments=same,
    )
    given = ask("seal_attachments", **samples.seal_request(), attachments=items[:2])
    declared = samples.seal_request(hdr={"schema": fixed.SCHEMA, "att_root": given["att_root"]})
    s.ok("att_root declared and right", "seal_attachments", **declared, attachments=items[:2])
    return s


def refused() -> Scenario:
    """Return roots that are not those of the attachments."""
    s = Scenario(
        "attachments/refused", "A declared att_root that is not the one of the attachments is refused."
    )
    items = [b"first", b"second"]
    given = ask("seal_attachments", **samples.seal_request(), attachments=items)
    coids = [bytes.fromhex(coid) for coid in given["coids"]]
    single_peak = ht("veen/att-node", coids[0] + coids[1])
    wrong = (
        ("zeros", ZERO_32, items),
        ("the single peak, not hashed again", single_peak, items),
        ("coids in reverse", ht("veen/att-root", ht("veen/att-node", coids[1] + coids[0])), items),
        ("coids joined without a tree", ht("veen/att-root", b"".join(coids)), items),
        ("nodes of the log", ht("veen/att-root", ht("veen/mmr-node", coids[0] + coids[1])), items),
        ("root of one attachment less", ht("veen/att-root", coids[0]), items),
        ("a lone coid for its root", coids[0], items[:1]),
        ("root of no attachments", ht("veen/att-root", b""), items),
    )
    for name, root, attachments in wrong:
        request = samples.seal_request(hdr={"schema": fixed.SCHEMA, "att_root": root})
        s.fails(name, ATT_ROOT, "seal_attachments", **request, attachments=attachments)
    return s


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of this module."""
    yield roots()
    yield sealing()
    yield refused()
