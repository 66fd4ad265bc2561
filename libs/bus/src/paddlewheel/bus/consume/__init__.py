"""Handling of messages until they are acknowledged: settling, ordering, dead letters, merging of streams."""
