"""SampleSet: model, plan, render and the policies between them."""
