"""What a service's `domain` builds on: plans, actions and fact tables. Pure: values and functions, no I/O."""
