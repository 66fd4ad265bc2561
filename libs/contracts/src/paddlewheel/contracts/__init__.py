"""Events, commands, subjects, envelope and CRD models; no I/O."""
