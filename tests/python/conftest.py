import io

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def reloaded():
    """Saves and loads a scripted module: the result has functions of its own, which LibTorch runs."""
    def reload(module):
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer)
        loaded.train(module.training)
        return loaded
    return reload
