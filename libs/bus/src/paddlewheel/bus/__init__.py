"""The Bus port with its NATS JetStream and memory adapters."""
