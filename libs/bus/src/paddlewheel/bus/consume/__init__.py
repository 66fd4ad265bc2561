"""The life of a message from fetch to acknowledgement: settling, ordering, dead letters, merging of
streams."""
