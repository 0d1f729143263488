"""Train a network on small images, with jit, value_and_grad and Adam.

    python examples/mnist.py                              a CNN on Fashion-MNIST (or on digits, where that is missing)
    python examples/mnist.py --model mlp --epochs 5
    python examples/mnist.py --data digits --plot out.png

The last lines say the accuracy on the test set and how many images a second were trained on, compilation left out.
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from data import DataError, Dataset, load
from tqdm import tqdm

import fungrad
from fungrad import nn


def flatten(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def pool(x: Any) -> Any:
    return nn.max_pool(x, (2, 2))


def mlp(rows: int, columns: int, classes: int) -> nn.Sequential:
    return nn.Sequential(flatten, nn.Linear(rows * columns, 256), nn.relu, nn.Linear(256, 128), nn.relu,
                         nn.Linear(128, classes))


def cnn(rows: int, columns: int, classes: int) -> nn.Sequential:
    features = (rows // 4) * (columns // 4) * 32
    return nn.Sequential(nn.Conv(1, 16, (3, 3)), nn.relu, pool, nn.Conv(16, 32, (3, 3)), nn.relu, pool, flatten,
                         nn.Linear(features, 128), nn.relu, nn.Linear(128, classes))


MODELS = {"mlp": mlp, "cnn": cnn}


@dataclass(frozen=True)
class Trainer:
    """The compiled functions: both take images of uint8 as they are, so that a batch is a small copy."""
    init: Callable[..., Any]
    step: Callable[..., Any]
    predict: Callable[..., Any]


def make_trainer(model: nn.Sequential, optimizer: nn.GradientTransformation, maximum: int, mean: float,
                 deviation: float) -> Trainer:
    def logits(params: Any, images: Any) -> Any:
        x = (images.astype(np.float32) / maximum - mean) / deviation
        return model(params, x[..., None])

    def loss(params: Any, images: Any, labels: Any) -> Any:
        return nn.softmax_cross_entropy_with_integer_labels(logits(params, images), labels).mean()

    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        value, gradients = fungrad.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return nn.apply_updates(params, updates), state, value

    def init(key: Any) -> Any:
        params = model.init(key)
        return params, optimizer.init(params)

    return Trainer(fungrad.jit(init), fungrad.jit(step, donate_argnums=(0, 1)),
                   fungrad.jit(lambda params, images: logits(params, images).argmax(-1)))


def predictions(trainer: Trainer, params: Any, images: np.ndarray, batch_size: int = 1000) -> np.ndarray:
    """The class of each image. The last batch is filled up, so that one compilation serves all."""
    batch_size = min(batch_size, len(images))
    classes = []
    for start in range(0, len(images), batch_size):
        batch = images[start:start + batch_size]
        filled = np.concatenate([batch, images[:batch_size - len(batch)]])
        classes.append(np.asarray(trainer.predict(params, filled))[:len(batch)])
    return np.concatenate(classes)


def train(trainer: Trainer, data: Dataset, epochs: int, batch_size: int, seed: int) -> tuple[Any, list[float], float]:
    """The trained parameters, the loss of every step, and the images per second."""
    params, state = trainer.init(fungrad.random.key(seed))
    generator = np.random.default_rng(seed)
    steps = len(data.train_images) // batch_size
    losses: list[float] = []
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        order = generator.permutation(len(data.train_images))
        with tqdm(range(steps), desc=f"epoch {epoch}", unit="step", disable=None) as progress:
            for number in progress:
                chosen = order[number * batch_size:(number + 1) * batch_size]
                start = time.perf_counter()
                params, state, loss = trainer.step(params, state, data.train_images[chosen], data.train_labels[chosen])
                losses.append(float(loss))
                if len(losses) > 1:  # the first step compiles
                    seconds += time.perf_counter() - start
                if number % 20 == 0:
                    progress.set_postfix(loss=f"{losses[-1]:.3f}")
        accuracy = np.mean(predictions(trainer, params, data.test_images) == data.test_labels)
        print(f"epoch {epoch}: loss {np.mean(losses[-steps:]):.4f}, test accuracy {accuracy:.4f}", flush=True)
    return params, losses, (len(losses) - 1) * batch_size / max(seconds, 1e-9)


def draw(path: str, data: Dataset, losses: list[float], classes: np.ndarray) -> None:
    """A picture of the loss curve and of test images with their predicted classes, wrong ones in red."""
    import matplotlib  # here: it takes half a second to import, and most runs draw nothing
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    window = max(len(losses) // 100, 1)
    smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
    axes.plot(losses, color="lightsteelblue", linewidth=0.5)
    axes.plot(np.arange(len(smooth)) + window / 2, smooth, color="navy")
    axes.set(xlabel="step", ylabel="loss", yscale="log", title=f"{data.name}: training loss")
    for axis, image, label, predicted in zip(right.subplots(4, 6).flat, data.test_images, data.test_labels, classes,
                                             strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(data.classes[predicted], fontsize=9, color="black" if predicted == label else "red")
        axis.set_axis_off()
    figure.savefig(path)
    pyplot.close(figure)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--data", choices=["fashion", "mnist", "digits"],
                        help="default: fashion where its files are, else digits")
    parser.add_argument("--data-dir", help="a folder with the four IDX files of fashion or mnist")
    parser.add_argument("--epochs", type=positive, help="default: 3; for digits 20")
    parser.add_argument("--batch-size", type=positive, help="default: 64; for digits 32")
    parser.add_argument("--lr", type=float, default=2e-3, help="the first learning rate; it falls along a cosine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="draw the loss curve and sample predictions")
    parser.add_argument("--quick", action="store_true", help="a short run, for tests: at most 2000 images")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    data = load(options.data, options.data_dir)
    if options.quick:
        data = replace(data, train_images=data.train_images[:2000], train_labels=data.train_labels[:2000])
    small = len(data.train_images) < 10_000
    epochs = options.epochs or ((8 if options.quick else 20) if small else 3)
    batch_size = min(options.batch_size or (32 if small else 64), len(data.train_images))
    print(f"{data.name}: {len(data.train_images)} training and {len(data.test_images)} test images; "
          f"{options.model}, {epochs} epochs in batches of {batch_size}", flush=True)

    sample = data.train_images[:5000] / data.maximum
    schedule = nn.cosine_decay_schedule(options.lr, epochs * (len(data.train_images) // batch_size), alpha=0.02)
    model = MODELS[options.model](*data.train_images.shape[1:], len(data.classes))
    trainer = make_trainer(model, nn.adam(schedule), data.maximum, float(sample.mean()), float(sample.std()))
    params, losses, rate = train(trainer, data, epochs, batch_size, options.seed)
    classes = predictions(trainer, params, data.test_images)
    if options.plot:
        draw(options.plot, data, losses, classes)
        print(f"drew {options.plot}")
    print(f"test accuracy: {np.mean(classes == data.test_labels):.4f}")
    print(f"images per second: {rate:.0f}")


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(f"error: {error}")
