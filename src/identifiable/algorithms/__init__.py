"""Numerical algorithms without estimators: arrays in, arrays out."""
