import pytest
import torch


@pytest.fixture(params=[0, 1])
def g(request):
    return torch.Generator().manual_seed(request.param)
