"""Follow one call of jit(grad(loss)) through every stage, from the trace to the machine code.

    python examples/01_follow_one_call.py                 every stage
    python examples/01_follow_one_call.py --stage fused   one of: trace transformed simplified fused schedule
                                                          instructions source assembly memory
"""
from __future__ import annotations

import argparse

import fungrad
import fungrad.numpy as fnp
from fungrad import nn, random
from fungrad.report import STAGES


def loss(params: dict[str, fungrad.Array], x: fungrad.Array, labels: fungrad.Array) -> fungrad.Array:
    """Cross-entropy of a linear classifier."""
    logits = x @ params["kernel"] + params["bias"]
    return -(nn.log_softmax(logits) * nn.one_hot(labels, logits.shape[-1])).sum(-1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=STAGES, help="print this stage only")
    options = parser.parse_args()
    params = {"kernel": random.normal(random.key(0), (64, 10)) * 0.1, "bias": fnp.zeros(10)}
    x, labels = random.normal(random.key(1), (32, 64)), fnp.arange(32) % 10
    step = fungrad.jit(fungrad.grad(loss))
    report = fungrad.show(step, options.stage)(params, x, labels)
    gradient = step(params, x, labels)
    print(f"\n{len(report.kernels)} kernels, {sum(kernel.flops for kernel in report.kernels):,} flops; "
          f"|gradient| = {float((gradient['kernel'] ** 2).sum()) ** 0.5:.4f}")


if __name__ == "__main__":
    main()
