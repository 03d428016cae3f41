"""placeholder."""


def demo() -> None:
    """Show a hub, two people and an auditor at work."""
