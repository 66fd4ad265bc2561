"""NATS auth callout: the server asks, for each connection, who the client is and what it may do."""
