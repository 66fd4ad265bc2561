"""The tools of operators and of the installation: permissions, accounts, inspection, durability."""
