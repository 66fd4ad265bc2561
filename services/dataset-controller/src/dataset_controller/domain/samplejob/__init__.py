"""SampleJob: one data operation on a SampleSet."""
