"""Tools for tests: random programs, stage comparison, laws of the transforms, gradient checks."""
