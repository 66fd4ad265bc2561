"""The decisions of the service. All functions are pure."""
