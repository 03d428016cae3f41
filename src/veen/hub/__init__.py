"""The hub: admits, orders and proves messages that it can not read."""
