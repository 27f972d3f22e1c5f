"""Stand-in: device libraries."""
