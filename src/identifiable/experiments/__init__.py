"""Published experiments as recipes, the runner that computes them, and their summary."""
