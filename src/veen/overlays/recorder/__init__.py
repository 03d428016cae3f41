"""The recorder overlay and its schemas."""
