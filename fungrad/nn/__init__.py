"""Neural networks: jax.nn's functions, layers over pytrees of parameters, losses, and optimizers in Optax's manner.

Parameters are pytrees and layers are pure functions over them:

    model = nn.Sequential(nn.Linear(784, 512), nn.relu, nn.Linear(512, 10))
    params = model.init(random.key(0))
    logits = model(params, images)
"""
from __future__ import annotations

from . import initializers as initializers, losses as losses, optim as optim, schedules as schedules
from .attention import MultiHeadAttention as MultiHeadAttention, dot_product_attention as dot_product_attention
from .conv import Conv as Conv, ConvTranspose as ConvTranspose
from .dropout import Dropout as Dropout
from .functions import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    mish as mish,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    standardize as standardize,
    swish as swish,
    tanh as tanh,
)
from .linear import Embedding as Embedding, Linear as Linear
from .losses import (
    cosine_distance as cosine_distance,
    cosine_similarity as cosine_similarity,
    hinge_loss as hinge_loss,
    huber_loss as huber_loss,
    kl_divergence as kl_divergence,
    kl_divergence_with_log_targets as kl_divergence_with_log_targets,
    l2_loss as l2_loss,
    log_cosh as log_cosh,
    sigmoid_binary_cross_entropy as sigmoid_binary_cross_entropy,
    sigmoid_focal_loss as sigmoid_focal_loss,
    smooth_labels as smooth_labels,
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels as softmax_cross_entropy_with_integer_labels,
    squared_error as squared_error,
)
from .norm import BatchNorm as BatchNorm, GroupNorm as GroupNorm, LayerNorm as LayerNorm, RMSNorm as RMSNorm
from .optim import (
    adagrad as adagrad,
    adam as adam,
    adamax as adamax,
    adamw as adamw,
    lion as lion,
    nadam as nadam,
    rmsprop as rmsprop,
    sgd as sgd,
    sign_sgd as sign_sgd,
)
from .optim_transforms import (
    GradientTransformation as GradientTransformation,
    add_decayed_weights as add_decayed_weights,
    apply_updates as apply_updates,
    chain as chain,
    clip as clip,
    clip_by_block_rms as clip_by_block_rms,
    clip_by_global_norm as clip_by_global_norm,
    global_norm as global_norm,
    masked as masked,
    scale as scale,
    scale_by_adam as scale_by_adam,
    scale_by_adamax as scale_by_adamax,
    scale_by_learning_rate as scale_by_learning_rate,
    scale_by_lion as scale_by_lion,
    scale_by_rms as scale_by_rms,
    scale_by_rss as scale_by_rss,
    scale_by_schedule as scale_by_schedule,
    scale_by_sign as scale_by_sign,
    scale_by_stddev as scale_by_stddev,
    trace as trace,
)
from .pool import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool
from .recurrent import GRUCell as GRUCell, LSTMCell as LSTMCell
from .schedules import (
    constant_schedule as constant_schedule,
    cosine_decay_schedule as cosine_decay_schedule,
    exponential_decay as exponential_decay,
    join_schedules as join_schedules,
    linear_schedule as linear_schedule,
    piecewise_constant_schedule as piecewise_constant_schedule,
    polynomial_schedule as polynomial_schedule,
    warmup_constant_schedule as warmup_constant_schedule,
    warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule as warmup_exponential_decay_schedule,
)
from .sequential import Sequential as Sequential
