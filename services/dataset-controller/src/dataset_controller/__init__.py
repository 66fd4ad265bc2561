"""SampleSet and SampleJob: volumes, runtime, phases and facts."""
