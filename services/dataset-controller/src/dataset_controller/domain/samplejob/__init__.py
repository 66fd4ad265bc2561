"""SampleJob: model and plan."""
