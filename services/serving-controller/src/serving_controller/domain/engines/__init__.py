"""What serves a PaddleService, behind one port: plain Kubernetes, or Knative."""
