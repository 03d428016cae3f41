"""Overlays: pure, total, mergeable folds of the log (001 section 11).

Start with ``overlay`` (what one is), ``schema`` and ``monoid``; ``engine`` folds, ``registry`` lists ours.
"""
