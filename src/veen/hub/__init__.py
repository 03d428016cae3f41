"""The hub: admits, orders and proves messages that it cannot read."""
