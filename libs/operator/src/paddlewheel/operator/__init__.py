"""What every controller shares: outbox, own writes, shares, rebuild, serving and draining."""
