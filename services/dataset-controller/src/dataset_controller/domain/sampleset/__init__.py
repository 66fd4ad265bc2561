"""SampleSet: a data set, its volume, its runtime and its cache on nodes."""
