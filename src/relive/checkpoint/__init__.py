"""Training state ↔ chunks: captured in the background, restored bit for bit."""
