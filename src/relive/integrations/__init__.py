"""Frameworks that relive plugs into: one file each, loaded only by those who use the framework."""
