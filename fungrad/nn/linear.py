"""Dense layers and embeddings."""
from __future__ import annotations

from typing import Any

from .. import numpy as fnp, random
from ..errors import DTypeError
from .functions import Array
from .initializers import Initializer, lecun_normal, variance_scaling, zeros
from .layer import check_features, layer


@layer
class Linear:
    """x @ kernel + bias: (..., in_features) -> (..., out_features). Parameters: {"kernel", "bias"}."""
    in_features: int
    out_features: int
    use_bias: bool = True
    kernel_init: Initializer = lecun_normal()
    bias_init: Initializer = zeros
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        kernel_key, bias_key = random.split(key)
        params = {"kernel": self.kernel_init(kernel_key, (self.in_features, self.out_features), self.dtype)}
        if self.use_bias:
            params["bias"] = self.bias_init(bias_key, (self.out_features,), self.dtype)
        return params

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        check_features("Linear", x, self.in_features)
        result = fnp.matmul(x, params["kernel"])
        return result + params["bias"] if self.use_bias else result


@layer
class Embedding:
    """A table of vectors: integers (...) -> (..., features). Parameters: {"embedding"}, (num_embeddings, features)."""
    num_embeddings: int
    features: int
    embedding_init: Initializer = variance_scaling(1.0, "fan_in", "normal", out_axis=0)
    dtype: Any = None

    def init(self, key: Array) -> dict[str, Array]:
        return {"embedding": self.embedding_init(key, (self.num_embeddings, self.features), self.dtype)}

    def __call__(self, params: dict[str, Array], x: Array) -> Array:
        x = fnp.asarray(x)
        if x.dtype.kind not in "iu":
            raise DTypeError(f"Embedding looks up integers, got {x.dtype}.")
        return params["embedding"][x]

    def attend(self, params: dict[str, Array], query: Array) -> Array:
        """The products of `query` (..., features) with every row: (..., num_embeddings), as logits of a tied output."""
        check_features("Embedding", query, self.features)
        return fnp.matmul(query, fnp.transpose(params["embedding"]))
