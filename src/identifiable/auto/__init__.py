"""The automatic fit: which model, how many latents, and how reliable each latent is."""
