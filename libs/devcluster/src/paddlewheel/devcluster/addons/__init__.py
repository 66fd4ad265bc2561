"""What can be installed on a cluster beside Paddlewheel: a gateway, and Knative Serving behind it."""
