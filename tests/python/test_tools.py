"""sconce.check, bench, explain, warm_up, load."""
import io
import sys

import pytest
import torch

import sconce


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()


def test_check_agrees():
    result = sconce.check(mlp(), torch.randn(3, 16), grad=True)
    assert result and "agree with LibTorch" in str(result) and "<pre>" in result._repr_html_()


def test_check_finds_differences(monkeypatch):
    module = sys.modules["sconce._check"]
    made = []

    def other_twin(model):
        made.append(module_twin(model))
        with torch.no_grad():
            getattr(made[-1], "2").bias.add_(len(made) - 1)
        return made[-1]

    module_twin = module.twin_of
    monkeypatch.setattr(module, "twin_of", other_twin)
    result = sconce.check(mlp(), torch.randn(3, 16), calls=2)
    assert not result and result.differences == [f"call {n}: result: differs by up to 1" for n in (1, 2)]


def test_check_says_that_calls_raise():
    result = sconce.check(mlp(), torch.randn(3, 5))
    assert not result and not result.differences and len(result.errors) == 5
    assert "5 calls raise on both: RuntimeError: mat1 and mat2 shapes" in str(result)
    with pytest.raises(ValueError, match="at least 1"):
        sconce.check(mlp(), torch.randn(3, 16), calls=0)
    with pytest.raises(TypeError, match="scripted module or function, not int"):
        sconce.check(3, 4)


def test_check_says_that_only_one_raises(monkeypatch):
    module = sys.modules["sconce._check"]
    made = []

    def other_twin(model):
        made.append(module_twin(model))
        return made[-1] if len(made) == 1 else torch.jit.script(torch.nn.Identity())

    module_twin = module.twin_of
    monkeypatch.setattr(module, "twin_of", other_twin)
    result = sconce.check(mlp(), torch.randn(3, 5), calls=3)
    assert len(result.differences) == 3
    assert "call 1: raises RuntimeError: mat1 and mat2" in str(result) and "where LibTorch returns a result" in str(result)


def test_the_generator_keeps_its_state():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    before = torch.get_rng_state()
    sconce.check(model, torch.randn(2, 4, generator=torch.Generator()))
    sconce.bench(model, torch.ones(2, 4), seconds=0.1)
    assert torch.equal(torch.get_rng_state(), before)


def test_check_and_bench_take_functions():
    function = torch.jit.script(lambda_like)
    assert sconce.check(function, torch.randn(3), 2)
    assert len(sconce.bench(function, torch.randn(3), 2, seconds=0.1).rows) == 2
    with pytest.raises(ValueError, match="no gradient flows"):
        sconce.bench(function, torch.randn(3), 2, seconds=0.1, grad=True)


def lambda_like(x, k: int):
    return torch.tanh(x) * k


def test_bench_shows_a_table():
    result = sconce.bench(mlp(), torch.randn(2, 16), seconds=0.2)
    assert [row.executor for row in result.rows] == ["sconce", "torch.jit", "eager"]
    assert result.ratio > 0 and "times as fast" in str(result) and "<td>torch.jit</td>" in result._repr_html_()
    assert sconce.bench(torch.jit.script(mlp()), torch.randn(2, 16), seconds=0.2, grad=True).gradients


def test_explain():
    model = sconce.accelerate(mlp(), compile="blocking")
    assert repr(sconce.explain(model)) == "<sconce.Explanation of no call>"
    for _ in range(3):
        model(torch.randn(2, 16))
    explanation = sconce.explain(model)
    assert explanation["forward"]["counters"]["invocations"] == 3 and explanation.refusals == []
    assert "specialized plan" in str(explanation) and "<td>forward</td><td>3</td>" in explanation._repr_html_()
    with pytest.raises(KeyError):
        explanation["backward"]


def test_warm_up_changes_nothing_else():
    model = sconce.accelerate(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout()))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seed = torch.random.get_rng_state()
    x = torch.randn(4, 16)
    kept = torch.random.get_rng_state()
    sconce.warm_up(model, x)
    assert torch.equal(torch.random.get_rng_state(), kept) and not torch.equal(seed, kept)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert len(sconce.explain(model)["forward"]["plans"]) > 1


def test_load(tmp_path):
    path = tmp_path / "model.pt"
    scripted = torch.jit.script(mlp())
    scripted.save(str(path))
    loaded = sconce.load(path, exact=True)
    x = torch.randn(3, 16)
    assert torch.equal(loaded(x), scripted(x)) and sconce.is_accelerated(loaded)
    buffer = io.BytesIO(path.read_bytes())
    assert torch.equal(sconce.load(buffer)(x), scripted(x))
    with pytest.raises(ValueError):
        sconce.load(tmp_path / "missing.pt")
