"""Learnable priors as torch modules, with the member axis first."""
