"""The settings that stay with a data directory, and the rules that held before."""

from veen.core.data_dir.hub_settings import EarlierRule, HubSettings


def test_what_held_before_is_known_for_its_time() -> None:
    kept = HubSettings(
        epoch_sec=0,
        pad_blocks=(256,),
        require_cap=False,
        earlier=(EarlierRule(until=100, require_cap=False), EarlierRule(until=200, require_cap=True)),
    )
    assert HubSettings.decode(kept.encode()) == kept
    found = {time: kept.require_cap_at(time) for time in (0, 99, 101, 199, 201, 10_000)}
    assert found == {0: False, 99: False, 101: True, 199: True, 201: False, 10_000: False}
    # In the second of a change both held: what is in the log was taken, with or without a token.
    assert not kept.require_cap_at(100)
    assert not kept.require_cap_at(200)
