"""Backward, optimizers and steps by plans, beside PyTorch's own."""
import contextlib
import copy
import gc
import warnings
import weakref

import pytest
import sconce
import torch
import torch.utils.checkpoint

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, 1e-2),
    "amsgrad": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, initial_accumulator_value=0.1),
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 32)
        self.b = torch.nn.Linear(32, 3)
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.b(torch.tanh(self.a(x)))


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def batches(count, size=16):
    return [(torch.randn(size, 8), torch.randint(0, 3, (size,))) for _ in range(count)]


def same_optimizers(ours, theirs):
    a, b = ours.state_dict(), theirs.state_dict()
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for key, state in b["state"].items():
        assert a["state"][key].keys() == state.keys()
        for name, value in state.items():
            close(a["state"][key][name], value)


def plain_steps(model, optimizer, data, scheduler=None):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if scheduler is not None:
            scheduler.step()
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("whole", [False, True])
def test_steps_are_those_of_pytorch(name, whole):
    theirs = Net()
    ours = copy.deepcopy(theirs)
    optimizers = [OPTIMIZERS[name](each.parameters()) for each in (ours, theirs)]
    schedulers = [torch.optim.lr_scheduler.StepLR(each, 4, 0.5) for each in optimizers]
    data = batches(12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # schedulers see the steps
        if whole:
            step = sconce.TrainStep(ours, torch.nn.CrossEntropyLoss(), optimizers[0])
            losses = []
            for x, y in data:
                losses.append(step(x, y).item())
                step.wait_for_compiles()
                schedulers[0].step()
            assert step.explain()["updated_by_plan"] > 8
            assert all(each.grad is None for each in ours.parameters())
        else:
            assert sconce.capture(optimizers[0]) is optimizers[0]
            losses = plain_steps(ours, optimizers[0], data, schedulers[0])
            assert sconce.explain(optimizers[0])["captured_steps"] == 12
        close(torch.tensor(losses), torch.tensor(plain_steps(theirs, optimizers[1], data, schedulers[1])))
    for a, b in zip(ours.parameters(), theirs.parameters()):
        close(a, b)
    close(ours.calls, theirs.calls)
    same_optimizers(*optimizers)


def test_what_the_program_changes_between_steps_counts():
    theirs = Net()
    ours = copy.deepcopy(theirs)
    a, b = [torch.optim.Adam(each.a.parameters(), 1e-2) for each in (ours, theirs)]
    sconce.capture(a)
    data = batches(4)
    saved = []
    for model, optimizer in ((ours, a), (theirs, b)):
        plain_steps(model, optimizer, data)
        saved.append(copy.deepcopy(optimizer.state_dict()))
        optimizer.add_param_group({"params": list(model.b.parameters()), "lr": 1e-3})
        plain_steps(model, optimizer, data)
        optimizer.param_groups[0]["betas"] = (0.5, 0.9)
        for parameter in model.a.parameters():
            optimizer.state[parameter]["exp_avg"].zero_()
        plain_steps(model, optimizer, data)
        optimizer.param_groups[0]["maximize"] = True  # PyTorch's step, in between
        plain_steps(model, optimizer, data[:1])
        optimizer.param_groups[0]["maximize"] = False
        plain_steps(model, optimizer, data)
        optimizer.state.pop(model.a.weight)
        plain_steps(model, optimizer, data)
    same_optimizers(a, b)
    explained = sconce.explain(a)
    assert explained["captured_steps"] == 16 and explained["steps"] == 17  # of the optimizer with its second group
    a2, b2 = [torch.optim.Adam(each.a.parameters(), 1e-2) for each in (ours, theirs)]
    sconce.capture(a2)
    for model, optimizer, state in ((ours, a2, saved[0]), (theirs, b2, saved[1])):
        optimizer.load_state_dict(state)
        plain_steps(model, optimizer, data)
    same_optimizers(a2, b2)
    for x, y in zip(ours.parameters(), theirs.parameters()):
        close(x, y)
    assert sconce.restore(a) is a
    assert "step" not in vars(a)
    same_optimizers(a, b)


def test_hooks_closures_copies_and_other_optimizers():
    model = Net()
    optimizer = sconce.capture(torch.optim.SGD(model.parameters(), 0.1))
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    x, y = batches(1)[0]

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).requires_grad
    assert seen == ["pre", "post"]
    assert "step" not in vars(copy.deepcopy(optimizer))
    other = sconce.capture(torch.optim.NAdam(model.parameters()))
    other.step()
    assert sconce.explain(other)["reasons"] == {"the update of NAdam is not known": 1}
    with pytest.raises(TypeError, match="expects one of SGD"):
        sconce.TrainStep(model, torch.nn.CrossEntropyLoss(), other)
    with pytest.raises(TypeError, match="expects an optimizer"):
        sconce.capture(model)
    with pytest.raises(RuntimeError, match="not captured"):
        sconce.explain(torch.optim.SGD(model.parameters(), 0.1))
    gone = weakref.ref(optimizer)
    del optimizer, closure
    gc.collect()
    assert gone() is None


def test_train_steps_take_functions_and_several_values():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x, scale: float):
            y = self.net(x)
            return y * scale, y

    @torch.jit.script
    def loss(output: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor, weight: float):
        return torch.nn.functional.cross_entropy(output[0], target) + weight * output[1].square().mean()

    theirs = Two()
    ours = copy.deepcopy(theirs)
    step = sconce.TrainStep(ours, loss, torch.optim.SGD(ours.parameters(), 0.1), clip_norm=0.5)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for size in (16, 16, 16, 5, 7, 16):
        (x, y), = batches(1, size)
        optimizer.zero_grad()
        expected = loss(theirs(x, 0.5), y, 0.1)
        expected.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        close(step((x, 0.5), (y, 0.1)), expected.detach())
        step.wait_for_compiles()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        close(a, b)
    with pytest.raises(Exception, match="Expected"):
        step((x, "text"), (y, 0.1))
    close(step((x, 0.5), (y, 0.1)), loss(theirs(x, 0.5), y, 0.1).detach())


def test_compiled_backward_is_the_engines():
    model = Net()
    engine = torch.autograd.Variable._execution_engine
    backward = sconce.CompiledBackward(compile="blocking")
    x = torch.randn(16, 8, requires_grad=True)
    hooked = []
    model.a.weight.register_hook(lambda g: hooked.append(g.shape))

    def gradients(scope):
        model.zero_grad()
        y = model(x).square().mean()
        if scope:
            with backward:
                y.backward(retain_graph=True)
                extra = torch.autograd.grad(y, [x, model.unused], allow_unused=True)
        else:
            y.backward(retain_graph=True)
            extra = torch.autograd.grad(y, [x, model.unused], allow_unused=True)
        return [p.grad.clone() for p in (model.a.weight, model.b.bias)] + list(extra)

    for _ in range(6):
        for a, b in zip(gradients(True), gradients(False)):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b)
    assert len(hooked) == 12
    assert backward.explain()["by_plan"] > 0
    assert torch.autograd.Variable._execution_engine is engine
    # Errors are PyTorch's, and the scope is left.
    texts = []
    for scope in (True, False):
        y = model(x).sum()
        y.backward()
        with pytest.raises(RuntimeError) as caught:
            if scope:
                with backward:
                    y.backward()
            else:
                y.backward()
        texts.append(str(caught.value).splitlines()[0])
    assert texts[0] == texts[1]

    def stop(gradient):
        raise KeyError("the hook's own")

    handle = model.b.weight.register_hook(stop)
    with pytest.raises(KeyError, match="the hook's own"), backward:
        model(x).sum().backward()
    handle.remove()
    for a, b in zip(gradients(True), gradients(False)):
        assert a is None or torch.allclose(a, b, atol=1e-5)
    with backward:
        hessian = torch.autograd.functional.hessian(lambda z: model(z).square().sum(), x[:1].detach())
    close(hessian, torch.autograd.functional.hessian(lambda z: model(z).square().sum(), x[:1].detach()))


def test_what_no_plan_updates_is_pytorchs():
    def run(captured):
        torch.manual_seed(1)
        z = torch.nn.Parameter(torch.randn(4, dtype=torch.complex64))
        w = torch.nn.Parameter(torch.randn(4))
        optimizer = torch.optim.Adam([z, w], 0.1)
        if captured:
            sconce.capture(optimizer)
        for _ in range(5):
            optimizer.zero_grad()
            ((z * w).abs().square().sum() + w.sin().sum()).backward()
            optimizer.step()
        return optimizer, z.detach(), w.detach()

    ours, theirs = run(True), run(False)
    for a, b in zip(ours[1:], theirs[1:]):
        close(a, b)
    same_optimizers(ours[0], theirs[0])
    assert sconce.explain(ours[0])["reasons"] == {"a parameter has no floating-point numbers": 5}
    with pytest.raises(ValueError, match="complex"):
        sconce.TrainStep(Net(), torch.nn.CrossEntropyLoss(), theirs[0])


def test_compiled_backward_runs_code_of_python():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return gradient * (2 + 0 * x)

    model = Net()
    model.a.register_full_backward_hook(lambda module, given, got: None)
    x = torch.randn(16, 8)

    def gradients(scope):
        model.zero_grad()
        with scope:
            y = Double.apply(model(x))
            y = y + torch.utils.checkpoint.checkpoint(model.b, torch.tanh(y @ torch.ones(3, 32)), use_reentrant=False)
            y.square().mean().backward()
        return [p.grad.clone() for p in (model.a.weight, model.b.bias)]

    backward = sconce.CompiledBackward(compile="blocking")
    for _ in range(5):
        for a, b in zip(gradients(backward), gradients(contextlib.nullcontext())):
            close(a, b)


def test_losses_have_defaults():
    model = torch.nn.Linear(8, 4)
    step = sconce.TrainStep(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    x, y = torch.randn(3, 8), torch.randn(3, 4)
    for _ in range(4):
        expected = torch.nn.functional.mse_loss(model(x), y).detach()
        close(step(x, y), expected)
    with pytest.raises(RuntimeError, match="missing value for argument 'target'"):
        step(x, ())
    with pytest.raises(RuntimeError, match="at most 6 argument"):
        step(x, [y] * 9)


class TwoMethods(torch.nn.Linear):
    @torch.jit.export
    def scores(self, x):
        return torch.tanh(self(x)) * 3


def test_steps_train_another_method():
    torch.manual_seed(1)
    ours, theirs = TwoMethods(8, 3), TwoMethods(8, 3)
    theirs.load_state_dict(ours.state_dict())
    loss = torch.nn.functional.cross_entropy
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    step = sconce.TrainStep(ours, loss, torch.optim.SGD(ours.parameters(), 0.1), method="scores", compile="blocking")
    for x, y in batches(5):
        expected = loss(theirs.scores(x), y)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        close(step(x, y), expected.detach())
    assert step.explain()["by_plan"] > 0
    for a, b in zip(ours.parameters(), theirs.parameters()):
        close(a, b)
    with pytest.raises(ValueError, match="no method 'score'; it has: .*scores"):
        sconce.TrainStep(ours, loss, torch.optim.SGD(ours.parameters(), 0.1), method="score")


def test_steps_of_others_count():
    def run(ours):
        torch.manual_seed(3)
        model = torch.nn.Linear(8, 3)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        losses = (torch.nn.CrossEntropyLoss(), torch.nn.CrossEntropyLoss(label_smoothing=0.3))
        steps = [sconce.TrainStep(model, loss, optimizer) for loss in losses] if ours else None
        for i, (x, y) in enumerate(batches(12)):
            if ours and i % 3 < 2:
                steps[i % 3](x, y)
            else:
                optimizer.zero_grad()
                losses[i % 3 if i % 3 < 2 else 0](model(x), y).backward()
                optimizer.step()
            if i == 8:
                for state in optimizer.state.values():
                    state["step"].zero_()
            if i == 10:
                for state in optimizer.state.values():
                    state.clear()
        return model, optimizer

    ours, theirs = run(True), run(False)
    same_optimizers(ours[1], theirs[1])
    for a, b in zip(ours[0].parameters(), theirs[0].parameters()):
        close(a, b)


@pytest.mark.parametrize("name", ["decoupled", "scaler", "closure"])
def test_captured_steps_leave_to_pytorch(name):
    def run(captured):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = {"decoupled": lambda: torch.optim.Adam([p], 0.1, weight_decay=0.5, decoupled_weight_decay=True),
                     "scaler": lambda: torch.optim.SGD([p], 0.1, fused=True),
                     "closure": lambda: torch.optim.LBFGS([p], 0.1)}[name]()
        if captured:
            sconce.capture(optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

        def closure():
            optimizer.zero_grad()
            loss = (p - 3).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            if name == "scaler":
                optimizer.zero_grad()
                scaler.scale(p.sum()).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step(closure)
        return p.detach()

    close(run(True), run(False))
