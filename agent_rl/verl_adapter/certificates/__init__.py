"""Certificates of advantage estimators: the mean of their gradient, next to the exact gradient of their objective."""
