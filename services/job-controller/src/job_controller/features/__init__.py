"""What only some jobs need: a folder for each feature. Features do not import each other."""
