"""Wallets: schemas, effects, the fold and its reconciliation."""
