"""The benchmarks: each prints one JSON line, with ratios taken side by side in one run."""
