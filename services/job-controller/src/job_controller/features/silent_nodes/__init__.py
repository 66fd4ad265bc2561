"""The crash of a node is told apart from the failure of a program by the Leases of nodes."""
