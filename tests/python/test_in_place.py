"""Acceleration in place: what a module does on sconce is what it does on LibTorch, in values and in all else."""
import copy
import os
import subprocess
import sys
import threading
import textwrap
from typing import List

import pytest
import torch

import sconce


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.drop = torch.nn.Dropout(0.5)
        self.b = torch.nn.Linear(32, 4)

    def forward(self, x, scale: float = 1.0):
        return self.b(self.drop(torch.relu(self.norm(self.a(x))) * scale))

    @torch.jit.export
    def features(self, x):
        return torch.relu(self.a(x))


class Raises(torch.nn.Module):
    def forward(self, x, kind: int):
        if kind == 1:
            raise ValueError("too large: {}".format(kind))
        if kind == 2:
            assert x.size(0) == 0, "not empty"
        return torch.relu(x) @ torch.ones(7, 2)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture
def pair(reloaded):
    """One module on sconce and one on LibTorch, equal at first."""
    theirs = torch.jit.script(Net())
    return sconce.accelerate(reloaded(theirs)), reloaded(theirs)


def test_training_steps_are_equal(pair):
    x = torch.randn(8, 16)
    optimizers = [torch.optim.Adam(each.parameters(), 1e-2) for each in pair]
    for step in range(20):
        losses = []
        for each, optimizer in zip(pair, optimizers):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = each(x, 0.5).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        close(*losses)
    for (name, a), (_, b) in zip(pair[0].state_dict().items(), pair[1].state_dict().items()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)
    assert sconce.explain(pair[0])["forward"]["counters"]["invocations"] == 20


@pytest.mark.parametrize("scope", [torch.no_grad, torch.inference_mode, torch.enable_grad,
                                   lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes(pair, scope):
    ours, theirs = pair[0].eval(), pair[1].eval()
    for size in (3, 3, 3, 5, 1):
        x = torch.randn(size, 16)
        with scope():
            a, b = ours(x), theirs(x)
        assert a.dtype == b.dtype and a.is_inference() == b.is_inference() and a.requires_grad == b.requires_grad
        torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2)


def test_keywords_defaults_and_other_methods(pair):
    ours, theirs = pair[0].eval(), pair[1].eval()
    x = torch.randn(4, 16)
    close(ours(x=x, scale=2.0), theirs(x, 2.0))
    close(ours(x), theirs(x))
    close(ours.features(x), theirs.features(x))
    close(ours.a(x), theirs.a(x))
    for wrong in (lambda m: m(), lambda m: m(x, 1.0, 2), lambda m: m(x, y=1), lambda m: m("text")):
        errors = []
        for each in (ours, theirs):
            with pytest.raises(Exception) as caught:
                wrong(each)
            errors.append((caught.type, str(caught.value).strip().splitlines()[0]))
        assert errors[0] == errors[1]


def test_modules_of_a_class_run_on_their_own_parameters(reloaded):
    ours = [torch.jit.script(Net()) for _ in range(3)]
    with torch.no_grad():
        ours.append(copy.deepcopy(ours[0]))
        ours[3].b.bias.add_(1)
    for parameter in ours[3].parameters():
        parameter.requires_grad_()
    theirs = [reloaded(each) for each in ours]
    sconce.accelerate(ours[0])
    x = torch.randn(8, 16)

    def step(module):
        module.zero_grad()
        torch.manual_seed(1)
        y = module(x)
        y.square().mean().backward()
        return [y.detach()] + [p.grad.clone() for p in module.parameters()]

    for _ in range(4):  # a plan for gradients, a recording, its plan
        for _ in range(30):
            step(ours[0]), step(theirs[0])
        sconce.wait_for_compiles(ours[0])
    recorded = sconce.explain(ours[0])["forward"]["recorded"]
    assert recorded["by_plan"] + recorded["slower"] > 0
    for _ in range(12):
        for a, b in zip(ours, theirs):
            for got, expected in zip(step(a), step(b)):
                close(got, expected)
    with torch.no_grad():
        for _ in range(12):
            for a, b in zip(ours, theirs):
                close(a.eval()(x), b.eval()(x))
    sconce.restore(ours[0])
    assert not sconce.is_accelerated(ours[2])


def test_module_states_of_a_class_differ():
    class Switch(torch.nn.Module):
        def __init__(self, on: bool, k: int, scale):
            super().__init__()
            self.on, self.k, self.scale, self.count = on, k, scale, 0

        def forward(self, x):
            self.count += 1
            for _ in range(self.k):
                x = x * 2
            if self.on:
                x = x + self.count
            return x if self.scale is None else x * self.scale

    modules = [torch.jit.script(Switch(i % 2 == 0, i, 0.5 * i)) for i in range(6)]
    sconce.accelerate(modules[0])
    for count in range(1, 8):
        for i, each in enumerate(modules):
            expected = torch.full((2,), float(2 ** i)) + (count if i % 2 == 0 else 0)
            close(each(torch.ones(2)), expected * 0.5 * i)
            assert each.count == count


def test_the_module_stays_what_it_was(pair, reloaded, tmp_path):
    ours, theirs = pair[0].eval(), pair[1].eval()
    x = torch.randn(4, 16)
    ours(x)
    assert ours.code == theirs.code and str(ours.graph).count("\n") == str(theirs.graph).count("\n")
    close(reloaded(ours)(x), theirs(x))
    close(copy.deepcopy(ours)(x), theirs(x))
    close(torch.jit.freeze(ours)(x), theirs(x))
    close(torch.jit.trace(torch.nn.Sequential(ours, torch.nn.ReLU()), x)(x), torch.relu(theirs(x)))
    ours.load_state_dict({name: value + 0.1 if value.is_floating_point() else value
                          for name, value in theirs.state_dict().items()})
    theirs.load_state_dict(ours.state_dict())
    close(ours(x), theirs(x))
    close(ours.double()(x.double()), theirs.double()(x.double()))
    close(ours.float()(x), theirs.float()(x))

    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    close(torch.jit.script(Outer(ours))(x), theirs(x) * 2)
    assert sconce.restore(ours) is ours and not sconce.is_accelerated(ours)
    close(ours(x), theirs(x))


def test_transforms_and_higher_gradients(pair):
    ours, theirs = pair[0].eval(), pair[1].eval()
    x = torch.randn(8, 16)
    for each_x in (x, x.clone()):
        close(torch.func.vmap(lambda a: ours(a[None])[0])(each_x), theirs(each_x))
    tangent = torch.ones_like(x)
    close(torch.func.jvp(ours, (x,), (tangent,))[1], torch.func.jvp(theirs, (x,), (tangent,))[1])

    def second(module):
        leaf = x.clone().requires_grad_()
        first, = torch.autograd.grad(module(leaf).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]
    for _ in range(4):
        close(second(ours), second(theirs))


class TwoPaths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.b = torch.nn.Linear(6, 6)
        self.c = torch.nn.Linear(6, 4)

    def forward(self, x):
        h = torch.tanh(x)
        return self.c(h * torch.sigmoid(self.b(h)) + h)


def test_batched_gradients_leave_the_next_calls_alone(reloaded):
    theirs = torch.jit.script(TwoPaths())
    ours = sconce.accelerate(reloaded(theirs), compile="blocking", record_calls=False)

    def step(module, x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(module(x).sum(), [x, *module.parameters()])

    for _ in range(3):
        x = torch.randn(2, 6)
        for got, expected in zip(step(ours, x), step(theirs, x)):
            close(got, expected)
        leaf = x.clone().requires_grad_()
        rows = []
        for module in (ours, theirs):
            y = module(leaf)
            directions = torch.eye(y.numel()).view(-1, *y.shape)
            rows.append(torch.autograd.grad(y, leaf, directions, is_grads_batched=True)[0])
        close(*rows)


def test_dropout_after_calls_in_evaluation_mode(reloaded):
    theirs = torch.jit.script(torch.nn.Sequential(torch.nn.Conv1d(16, 16, 1), torch.nn.Dropout(0.1), torch.nn.Tanh()).eval())
    ours = sconce.accelerate(reloaded(theirs), compile="never")
    x = torch.randn(2, 16, 12)
    with torch.no_grad():
        for call in range(24):
            for module in (ours, theirs):
                module.train(call >= 12)
            results = []
            for module in (ours, theirs):
                torch.manual_seed(call)
                results.append(module(x))
            close(*results)


@pytest.mark.parametrize("arguments", [(torch.randn(3, 5), 0), (torch.randn(3, 7), 1), (torch.randn(3, 7), 2)])
def test_errors_are_those_of_libtorch(reloaded, arguments):
    source = torch.jit.script(Raises())
    ours, theirs = sconce.accelerate(source), reloaded(torch.jit.script(Raises()))
    for _ in range(4):
        errors = []
        for each in (ours, theirs):
            with pytest.raises(Exception) as caught:
                each(*arguments)
            errors.append(caught)
        assert errors[0].type is errors[1].type
        text = str(errors[0].value)
        assert text.strip().splitlines()[-1] == str(errors[1].value).strip().splitlines()[-1]
        assert text.count("The following operation failed") == 1 and text.count("Traceback of TorchScript") == 1
        assert "test_in_place.py" in text and "in forward" in text
    close(ours(torch.ones(2, 7), 0), theirs(torch.ones(2, 7), 0))


def test_errors_within_a_script_that_libtorch_runs(reloaded):
    @torch.jit.interface
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor, kind: int) -> torch.Tensor:
            pass

    class Outer(torch.nn.Module):
        inner: Inner

        def __init__(self):
            super().__init__()
            self.inner = Raises()

        def forward(self, x, kind: int):
            return self.inner.forward(x, kind)

    outer = torch.jit.script(Outer())
    twin = reloaded(outer)
    sconce.accelerate(outer.inner)
    for kind in (0, 1):
        errors = []
        for each in (outer, twin):
            with pytest.raises(Exception) as caught:
                each(torch.randn(3, 5), kind)
            errors.append(caught)
        assert errors[0].type is errors[1].type
        text = str(errors[0].value)
        assert text.strip().splitlines()[-1] == str(errors[1].value).strip().splitlines()[-1]
        assert text.count("The following operation failed") == 1


class RaisesInTask(torch.nn.Module):
    def task(self, x):
        if bool(x.sum() > 0):
            raise ValueError("positive")
        return x

    def forward(self, x):
        return torch.jit.wait(torch.jit.fork(self.task, x)) + x


def test_errors_of_forked_tasks(reloaded):
    theirs = torch.jit.script(RaisesInTask())
    ours = sconce.accelerate(reloaded(theirs))
    for i in range(4):
        errors = []
        for each in (ours, theirs):
            with pytest.raises(RuntimeError) as caught:
                each(torch.ones(2))
            errors.append(caught)
        assert errors[0].type is errors[1].type
        assert str(errors[0].value).strip().splitlines()[-1] == str(errors[1].value).strip().splitlines()[-1]
        close(ours(-torch.ones(2)), theirs(-torch.ones(2)))


@torch.jit.script
class NoOrder:
    def __init__(self, x: int):
        self.x = x


@torch.jit.script
class OrderOfIntegers:
    def __init__(self, x: int):
        self.x = x

    def __lt__(self, other: "OrderOfIntegers") -> int:
        return self.x - other.x


def sort_unordered(count: int):
    objects = [NoOrder(i) for i in range(count)]
    objects.sort()
    return len(objects)


def sort_by_integers(count: int):
    objects = [(i, OrderOfIntegers(i)) for i in range(count)]
    return len(sorted(objects))


@pytest.mark.parametrize("function", [sort_unordered, sort_by_integers])
def test_lists_without_an_order(function):
    scripted = torch.jit.script(function)

    def outcome(count):
        try:
            return scripted(count)
        except RuntimeError as error:
            return str(error).strip().splitlines()[-1]

    expected = [outcome(count) for count in range(3)]
    sconce.accelerate(scripted)
    for _ in range(3):
        assert [outcome(count) for count in range(3)] == expected
        sconce.wait_for_compiles(scripted)
    sconce.restore(scripted)


def test_functions():
    @torch.jit.script
    def f(x, k: int):
        for _ in range(k):
            x = torch.tanh(x) * 1.1
        return x

    traced = torch.jit.trace(lambda a: torch.sigmoid(a) + a, torch.randn(3))
    x = torch.randn(20, requires_grad=True)
    expected, expected_traced = f(x, 3), traced(x)
    for function, result in ((f, expected), (traced, expected_traced)):
        arguments = (x, 3) if function is f else (x,)
        assert sconce.accelerate(function) is function and sconce.is_accelerated(function)
        for _ in range(4):
            close(function(*arguments), result)
            close(torch.autograd.grad(function(*arguments).sum(), x), torch.autograd.grad(result.sum(), x, retain_graph=True))
        assert sconce.explain(function).methods[0]["counters"]["invocations"] == 8
        sconce.restore(function)
        assert not sconce.is_accelerated(function)
        close(function(*arguments), result)


ON_NUMBERS = [
    lambda a, n: a * n, lambda a, n: n - a, lambda a, n: a / n, torch.pow, lambda a, n: torch.where(a > 0, a, n),
    lambda a, n: torch.relu(a) * n + n, lambda a, n: (a * n).sum() * n, lambda a, n: (a * n).double(),
    lambda a, n: (n - a).to(torch.float32) + 1,
]


@pytest.mark.parametrize("number", [2, 1.25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_numbers_that_a_trace_recorded(dtype, number):
    """A trace holds them as tensors that type promotion takes for numbers."""
    for sizes in [(), (2, 3)]:
        x = torch.arange(-2, 4).to(dtype)[: torch.Size(sizes).numel()].reshape(sizes)

        def accepts(function):
            try:
                return function(x, number) is not None
            except RuntimeError:
                return False

        functions = [each for each in ON_NUMBERS if accepts(each)]
        assert len(functions) > 4
        # One by one, and all in one graph, where several nodes use one number.
        for used in [*([each] for each in functions), functions]:
            traced = torch.jit.trace(lambda a: tuple(each(a, number) for each in used), (x,))
            expected = tuple(each(x, number) for each in used)
            sconce.accelerate(traced)
            for _ in range(4):
                torch.testing.assert_close(traced(x), expected, equal_nan=True)
                sconce.wait_for_compiles(traced)


def test_unscripted_modules_are_scripted():
    model = Net().eval()
    scripted = sconce.accelerate(model)
    assert isinstance(scripted, torch.jit.ScriptModule)
    x = torch.randn(4, 16)
    close(scripted(x), model(x))

    class NotScriptable(torch.nn.Module):
        def forward(self, *args):
            return args

    with pytest.raises(Exception, match="variable number of arguments"):
        sconce.accelerate(NotScriptable())


def test_wrong_uses():
    model = sconce.accelerate(Net().eval())
    for options, words in (({"exakt": True}, "no option 'exakt'; did you mean 'exact'"),
                           ({"exact": 1}, "'exact' must be true or false, not 1"),
                           ({"frozen": True}, "torch.jit.freeze"),
                           ({"compile": "now"}, "background")):
        with pytest.raises(RuntimeError, match=words):
            sconce.accelerate(model, **options)
    assert sconce.is_accelerated(model)
    for action in (sconce.explain, sconce.restore, sconce.wait_for_compiles, sconce.warm_up):
        with pytest.raises(TypeError, match="expects a scripted module or function, not int"):
            action(3)
    with pytest.raises(RuntimeError, match="not accelerated"):
        sconce.explain(sconce.restore(model))


def test_what_sconce_refuses_runs_on_libtorch():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Tanh()))
    x = torch.randn(2, 4)
    expected = model(x)
    graph = model.forward.graph  # a pass of LibTorch's leaves a node that only its executor knows
    torch._C._jit_pass_inline(graph)
    torch._C._jit_pass_create_autodiff_subgraphs(graph, 2)
    sconce.accelerate(model)
    for _ in range(3):
        close(model(x), expected)
    refusals = sconce.explain(model).refusals
    assert len(refusals) == 1 and "prim::DifferentiableGraph" in refusals[0]
    assert [each["calls"] for each in sconce.status()["accelerated"] if "DifferentiableGraph" in each["refusal"]] == [3]
    sconce.restore(model)
    close(model(x), expected)


def test_threads_take_turns(pair):
    ours, theirs = pair[0].eval(), pair[1].eval()
    x = torch.randn(8, 16)
    with torch.no_grad():
        expected = theirs(x)
    failures = []

    def call():
        with torch.no_grad():
            for _ in range(200):
                if not torch.allclose(ours(x), expected, 1e-4, 1e-5):
                    failures.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_other_python_threads_run_meanwhile():
    """A call releases Python's lock."""
    big = sconce.accelerate(torch.nn.Sequential(*[torch.nn.Linear(700, 700) for _ in range(12)]).eval())
    x = torch.randn(256, 700)
    turns, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            turns[0] += 1
            stop.wait(0.0005)

    with torch.no_grad():
        for _ in range(5):
            big(x)
        thread = threading.Thread(target=count)
        thread.start()
        for _ in range(10):
            big(x)
    stop.set()
    thread.join()
    assert turns[0] > 10


def in_process(code):
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Decodes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 3)

    def forward(self, x, symbols: List[int]):
        return torch.tensor(symbols), self.a(x), torch.tensor([0.5 * symbols[0], 2.0])


def test_tensors_of_lists_are_returned(reloaded):
    """C++ code fills them, which no operator tells a recording."""
    theirs = torch.jit.script(Decodes())
    ours = sconce.accelerate(reloaded(theirs))
    for i in range(12):
        x, symbols = torch.randn(2, 4, requires_grad=i % 2 == 0), list(range(1 + i // 2 % 2, 3))
        results = [each(x, symbols) for each in (ours, theirs)]
        for result, expected in zip(*results):
            torch.testing.assert_close(result, expected)
        gradients = [torch.autograd.grad(each[1].square().sum(), theirs.a.weight if each is results[1] else ours.a.weight)
                     for each in results]
        torch.testing.assert_close(*gradients)
        results[0][0].add_(1)  # the caller's own
        sconce.wait_for_compiles(ours)


def test_compiles_need_no_python():
    """Python has replaced meta kernels of LibTorch's by its own: a compile that ran them would import modules and take its lock."""
    assert in_process("""
        import sys, threading, torch, sconce
        main, imports = threading.get_ident(), []
        sys.addaudithook(lambda event, args: imports.append(args[0])
                         if event == "import" and threading.get_ident() != main else None)
        model = sconce.accelerate(torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.ReLU(), torch.nn.LayerNorm(100)))
        for _ in range(5):
            model(torch.randn(4, 100)).sum().backward()
        sconce.wait_for_compiles(model)
        print(imports)
    """).strip() == "[]"


def test_a_process_may_end_while_something_compiles():
    for _ in range(4):
        in_process("""
            import torch, sconce
            model = sconce.accelerate(torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.ReLU()))
            for _ in range(4):
                model(torch.randn(4, 100)).sum().backward()
        """)


def test_memory_is_given_back():
    """Of modules that were loaded, accelerated, called and dropped."""
    sizes = in_process("""
        import io, gc, torch, sconce
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(torch.nn.Sequential(*[torch.nn.Linear(700, 700) for _ in range(4)])), buffer)
        x = torch.randn(4, 700)
        for i in range(24):
            buffer.seek(0)
            model = sconce.load(buffer)
            for _ in range(5):
                model(x).sum().backward()
            with torch.no_grad():
                for _ in range(12):
                    model(x)
            sconce.wait_for_compiles(model)
            if i % 8 == 7:
                with open("/proc/self/statm") as file:
                    print(int(file.read().split()[1]) * 4 // 1024)
            del model
    """).split()
    first, last = int(sizes[0]), int(sizes[-1])
    assert last - first < 60, sizes  # one model has 8 MB, as have its gradients and its packed copies


def test_fork_after_calls():
    model = sconce.accelerate(Net().eval())
    x = torch.randn(4, 16)
    with torch.no_grad():
        expected = model(x)
        for _ in range(4):
            model(x)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            same = torch.allclose(model(x), expected, 1e-4, 1e-5)
        os.write(write, b"1" if same else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"1"


def test_data_loader_workers():
    model = sconce.accelerate(Net().eval())

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            with torch.no_grad():
                return model(torch.full((2, 16), float(i)))

    rows = torch.cat(list(torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2)))
    with torch.no_grad():
        close(rows, torch.stack([model(torch.full((2, 16), float(i))) for i in range(8)]))


class Itself(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.is_accelerated = False

    def forward(self, x):
        if not self.is_accelerated:
            torch.ops.sconce.accelerate(self, "")
            self.is_accelerated = True
        return self.net(x)


def test_a_script_may_accelerate_itself(reloaded):
    theirs = torch.jit.script(Net().eval())
    model = Itself()
    model.net.load_state_dict(theirs.state_dict())
    ours = reloaded(torch.jit.script(model.eval()))
    x = torch.randn(8, 16)
    for _ in range(4):
        close(ours(x), theirs(x))
    assert sconce.explain(ours)["forward"]["counters"]["invocations"] == 3


def test_all_modules_are_accelerated():
    sconce.accelerate_all()
    frozen = torch.jit.freeze(torch.jit.script(Net().eval()))
    theirs = frozen(torch.ones(2, 16))
    for _ in range(3):
        close(frozen(torch.ones(2, 16)), theirs)
    assert sconce.is_accelerated(frozen)
    assert sconce.stop_accelerating_all() and not sconce.stop_accelerating_all()
    assert any(each["method"] == "Net.forward" for each in sconce.status()["methods"])
    assert sconce.capabilities()["why_no_kernels"] is None


class Potential(torch.nn.Module):
    """Functions of float64 that kernels call in LibTorch's libraries, which are not in Python's global scope."""

    def forward(self, x):
        return torch.exp(-x * x) * torch.cos(x) + torch.tanh(x * 0.5)


def test_kernels_find_the_functions_that_they_call():
    model = torch.jit.script(Potential())
    sconce.accelerate(model)
    x = torch.randn(300, 3, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(3):
            for _ in range(4):
                close(model(x), Potential()(x))
            sconce.wait_for_compiles(model)
    explained = sconce.explain(model)
    assert [plan["not_prepared"] for plan in explained["forward"]["plans"] if plan["groups"]] == [[]]
