"""Jobs with `sampleSetRef` wait for their data set, run near it and survive a lost mount."""
