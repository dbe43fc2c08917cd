"""Clusters and components of scikit-learn, batch by batch."""

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import IncrementalPCA

rng = np.random.default_rng(12)
clusters = MiniBatchKMeans(n_clusters=3, random_state=np.random.RandomState(4), n_init=1, reassignment_ratio=0.5)
components = IncrementalPCA(n_components=2)

for epoch in range(6):
    batch = rng.normal(size=(40, 5)) + rng.integers(0, 3, size=(40, 1)) * 4
    clusters.partial_fit(batch)
    components.partial_fit(batch)
    print("inertia:", float(clusters.inertia_))
    # probe late_centers: float(clusters.cluster_centers_.sum())
    # probe late_variance: float(components.explained_variance_.sum())
# probe after_centers: float(clusters.cluster_centers_.sum())
# probe after_seen: float(components.n_samples_seen_)
