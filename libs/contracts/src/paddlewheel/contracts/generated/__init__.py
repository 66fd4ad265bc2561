"""Generated from protos/ by `make gen`; do not edit."""
