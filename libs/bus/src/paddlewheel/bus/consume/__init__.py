"""From fetching a message to its end: settling, ordering, dead letters, merging of streams."""
