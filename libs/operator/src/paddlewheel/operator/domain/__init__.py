"""Plans, actions and fact tables, the base of each service's `domain`. Pure: values and functions, no I/O."""
