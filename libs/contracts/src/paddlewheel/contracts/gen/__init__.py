"""Everything made from `protos/`: models, the registry of events, and the documents about them."""
