"""Stands in for torchvision where public scripts are tried out: the same names, and pictures made of noise."""

from torchvision import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
