"""Modelplane (modelplane.ai/v1alpha1): deployments become models, classes and clusters of hardware an inventory."""
