"""What keeps pods from running or from ending and does not pass by itself."""
