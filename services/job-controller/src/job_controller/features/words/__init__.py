"""Words of the spec that are read with another meaning are reported in a condition."""
