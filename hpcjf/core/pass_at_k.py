"""pass@k without bias."""

from __future__ import annotations

import math


def pass_at_k(samples: int, right: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the chance that k of n = ``samples`` responses, of which c are ``right``, hold a right
    one (arXiv 2107.03374, eq. 1). Raises ValueError unless 0 <= c <= n and 1 <= k <= n."""
    if not (0 <= right <= samples and 1 <= k <= samples):
        raise ValueError(f"no pass@{k} of {right} right in {samples}")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
