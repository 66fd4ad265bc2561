"""Facts and object-store notifications that start work."""
