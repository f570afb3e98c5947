"""Imports Modelplane (modelplane.ai/v1alpha1): deployments become models, classes and clusters an inventory."""
