"""Model providers behind one port, and what they cost."""
