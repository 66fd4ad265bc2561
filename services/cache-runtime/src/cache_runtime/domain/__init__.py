"""Pure decisions of the cache runtime: no clock, no I/O, no tasks."""
