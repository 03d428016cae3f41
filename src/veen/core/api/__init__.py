"""Requests and responses of the hub, as wire objects; any transport carries them."""
