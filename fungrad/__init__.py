"""fungrad: pure-functional transforms over an open compiler.

    import fungrad, fungrad.numpy as fnp
    step = fungrad.jit(fungrad.grad(loss))

Names are JAX's where JAX has the thing. This file is the public surface and the one place where the layers are joined.
"""
from __future__ import annotations

from . import lax, numpy, random, tree
from .config import settings
from .ir.value import OPERATORS
from .ir.value import Value as Array
from .numpy.operators import TABLE
from .runtime.devices import block_until_ready, device_get, device_put, devices
from .trace import set_base_trace
from .transforms import lazy
from .transforms.api import (ShapeDtypeStruct, eval_shape, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp,
                             linear_transpose, linearize, make_jaxpr, make_program, value_and_grad, vjp, vmap)
from .transforms.jit import jit, why
from .version import __version__

OPERATORS.update(TABLE)
set_base_trace(lazy.install())
