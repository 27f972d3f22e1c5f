"""Certificates compare the mean gradient of an advantage estimator with the exact gradient of its objective."""
