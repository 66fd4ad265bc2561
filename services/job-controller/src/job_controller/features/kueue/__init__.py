"""Jobs in a queue of Kueue have a Workload, and pods only while Kueue admits it."""
