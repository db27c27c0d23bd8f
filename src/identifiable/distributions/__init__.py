"""Distributions as plain values: Gaussian mixtures, conditional priors, log-densities."""
