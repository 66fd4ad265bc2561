"""The add-ons of a cluster: a gateway, and Knative Serving behind it."""
