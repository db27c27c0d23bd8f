"""The search for hyperplanes that hold the samples in which a latent is inactive."""
