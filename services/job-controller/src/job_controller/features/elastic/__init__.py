"""Jobs with `worker.requests` train with fewer workers while there is no room for all."""
