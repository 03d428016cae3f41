"""Counts in texts for people: singular and plural."""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural: ``1 entry``, ``2 entries``."""
    return f"{count} {by_count(count, noun, _plural(noun))}"


def by_count(count: int, one: str, many: str) -> str:
    """Return the first word for a count of one, else the second: ``is`` or ``are``."""
    return one if count == 1 else many


def _plural(noun: str) -> str:
    stem, last = noun[:-1], noun[-1:]
    if last == "y" and stem[-1:] not in "aeiou":
        return f"{stem}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
