"""fungrad: pure-functional transforms over an open compiler.

    import fungrad, fungrad.numpy as fnp
    step = fungrad.jit(fungrad.grad(loss))

Names are JAX's where JAX has the thing. This file is the public surface and the one place where the layers are joined.
The front ends, custom rules, `checkpoint`, `show` and `passes` are imported when they are first used, so that
`import fungrad` stays light.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import tree
from .config import settings
from .ir.value import OPERATORS, Value as Array
from .runtime.devices import block_until_ready, device_get, device_put, devices
from .trace import set_base_trace
from .transforms import lazy
from .transforms.api import (
    ShapeDtypeStruct,
    eval_shape,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    make_program,
    value_and_grad,
    vjp,
    vmap,
)
from .transforms.jit import jit, why
from .transforms.lazy import realize
from .version import __version__

if TYPE_CHECKING:
    from . import lax, nn, numpy, random
    from .lower.pipeline import passes
    from .report import show
    from .transforms.checkpoint import checkpoint, checkpoint_policies, remat
    from .transforms.custom_jvp import custom_jvp
    from .transforms.custom_vjp import closure_convert, custom_gradient, custom_vjp

__all__ = [
    "Array", "ShapeDtypeStruct", "__version__", "block_until_ready", "checkpoint", "checkpoint_policies",
    "closure_convert", "custom_gradient", "custom_jvp", "custom_vjp", "device_get", "device_put", "devices",
    "eval_shape", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "lax", "linear_transpose",
    "linearize", "make_jaxpr", "make_program", "nn", "numpy", "passes", "random", "realize", "remat", "settings",
    "show",
    "tree", "value_and_grad", "vjp", "vmap", "why",
]

_LATER = {"lax": ("lax", None), "nn": ("nn", None), "numpy": ("numpy", None), "random": ("random", None),
          "show": ("report", "show"), "passes": ("lower.pipeline", "passes"),
          "checkpoint": ("transforms.checkpoint", "checkpoint"), "remat": ("transforms.checkpoint", "remat"),
          "checkpoint_policies": ("transforms.checkpoint", "checkpoint_policies"),
          "custom_jvp": ("transforms.custom_jvp", "custom_jvp"), "custom_vjp": ("transforms.custom_vjp", "custom_vjp"),
          "custom_gradient": ("transforms.custom_vjp", "custom_gradient"),
          "closure_convert": ("transforms.custom_vjp", "closure_convert")}

OPERATORS.load = lambda: importlib.import_module("fungrad.numpy.operators").TABLE
set_base_trace(lazy.install())


def __getattr__(name: str) -> Any:
    """PEP 562: the names that are imported on first use."""
    if name not in _LATER:
        raise AttributeError(f"module 'fungrad' has no attribute {name!r}")
    module, attribute = _LATER[name]
    found = importlib.import_module(f"fungrad.{module}")
    globals()[name] = found if attribute is None else getattr(found, attribute)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
