"""Ray Train: `oneof.fit` in the function of a worker joins the group that Ray has formed."""

from __future__ import annotations

import os
from pathlib import Path

import distributed_cases
import pytest
from distributed_cases import digits

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_two_workers_of_ray_train_share_the_rows(tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    train = pytest.importorskip("ray.train")
    torch_trainer = pytest.importorskip(
        "ray.train.torch", reason="Ray Train is not installed: pip install 'ray[train]'"
    )

    def work(config):
        import torch.distributed as dist

        accuracy = digits()
        (tmp_path / f"rank-{dist.get_rank()}").write_text(f"{dist.get_world_size()} {accuracy}")

    # workers import this module and what it imports, by name
    folders = [
        str(Path(__file__).parent),
        str(Path(distributed_cases.__file__).parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(folders)}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        run_config = train.RunConfig(storage_path=str(tmp_path / "ray"))
        scaling = train.ScalingConfig(num_workers=2, use_gpu=False)
        torch_trainer.TorchTrainer(work, scaling_config=scaling, run_config=run_config).fit()
    finally:
        ray.shutdown()
    said = [(tmp_path / f"rank-{rank}").read_text().split() for rank in range(2)]
    assert said[0] == said[1]
    assert said[0][0] == "2"
    assert float(said[0][1]) > 0.85
