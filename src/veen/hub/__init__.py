"""The hub: admits, orders and proves messages whose content it cannot read."""
