"""Time the views: images per second of every recipe, on the GPU if there is one.

On a GPU each recipe is timed three ways: as it is, captured in a CUDA graph, and with `apply` compiled and then captured.
Times are of all views of one batch together.

    python benchmarks/speed/augment.py --batch 256 --repeats 200
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from oneof.data.augment import DATASETS, RECIPES, Views, views


def seconds(step: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Mean time of a step after a few to warm up."""
    for _ in range(3):
        step()
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    _wait(device)
    return (time.perf_counter() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def captured(step: Callable[[], object], generator: torch.Generator) -> Callable[[], object]:
    """The step as one CUDA graph that draws anew at every replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def ways(make: Views, images: torch.Tensor, generator: torch.Generator) -> dict[str, Callable[[], object]]:
    def eager() -> object:
        return make(images, generator)

    if images.device.type != "cuda":
        return {"eager": eager}
    apply = torch.compile(make.apply, fullgraph=True)

    def compiled() -> object:
        return apply(images, make.draw(images, generator))

    return {"eager": eager, "graph": captured(eager, generator), "compiled graph": captured(compiled, generator)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=50)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, batch {asked.batch}")
    print(f"{'recipe':8}{'data set':16}{'way':16}{'ms/batch':>10}{'images/s':>14}")
    for recipe in RECIPES:
        for dataset in ("fashion-mnist", "cifar10"):
            size, mean = DATASETS[dataset][:2]
            images = torch.randint(256, (asked.batch, len(mean), size, size), dtype=torch.uint8, device=device)
            generator = torch.Generator(device).manual_seed(0)
            make = views(recipe, dataset, device=device, dtype=torch.bfloat16)
            for way, step in ways(make, images, generator).items():
                took = seconds(step, asked.repeats, device)
                print(f"{recipe:8}{dataset:16}{way:16}{1e3 * took:10.3f}{asked.batch / took:14,.0f}")


if __name__ == "__main__":
    main()
