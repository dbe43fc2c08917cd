"""`relive ui`: the page of the current home, and what it asks of replay."""
