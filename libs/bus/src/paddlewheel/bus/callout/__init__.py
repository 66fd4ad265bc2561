"""NATS auth callout: the server asks for each connection who it is and what it may do."""
