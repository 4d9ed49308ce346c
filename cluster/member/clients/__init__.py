"""A member and its clients: ingress, requests, egress."""
