"""Programs report how far they are. A job that no longer reports is stalled."""
