"""The pods of a gang are scheduled together, through a PodGroup."""
