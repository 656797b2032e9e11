"""Parts that several policies share. Policies import from here, never from each other."""
