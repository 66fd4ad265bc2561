"""What operators and the installation need: permissions, accounts, inspection, durability."""
