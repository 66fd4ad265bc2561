"""Cache engines: what mounts a data set, fills its cache and copies into it."""
