"""Agreement between fits: restarts, refits with other seeds, and fits to halves of the rows."""
