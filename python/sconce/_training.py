"""Training by plans: backward, the optimizer's step, and whole steps."""
import json
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._accelerate import any_module, expect_scripted, is_function, scripted

_classes = torch.classes.sconce


class _Engine:
    """Stands before Python's autograd engine while a thread is in a CompiledBackward."""

    def __init__(self, engine: Any):
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_backward(self, tensors: Any, grad_tensors: Any, keep_graph: bool, create_graph: bool, inputs: Any,
                     allow_unreachable: bool = False, accumulate_grad: bool = False) -> Any:
        is_ours = (_scopes.depth > 0 and torch._C._functorch.peek_interpreter_stack() is None
                   and all(isinstance(each, torch.Tensor) for each in (*tensors, *inputs)))  # there may be edges instead
        if not is_ours:
            return self._engine.run_backward(tensors, grad_tensors, keep_graph, create_graph, inputs, allow_unreachable,
                                             accumulate_grad)
        gradients = _classes.BackwardCache.run_backward(list(tensors), list(grad_tensors), keep_graph, create_graph,
                                                        list(inputs), accumulate_grad, allow_unreachable)
        return tuple(gradients) if not accumulate_grad else None

    @staticmethod
    def enter() -> None:
        _scopes.depth += 1
        with _Engine.lock:
            _Engine.entered += 1
            if _Engine.entered == 1:
                torch.autograd.Variable._execution_engine = _Engine(torch.autograd.Variable._execution_engine)

    @staticmethod
    def leave() -> None:
        _scopes.depth -= 1
        with _Engine.lock:
            _Engine.entered -= 1
            if _Engine.entered == 0:
                torch.autograd.Variable._execution_engine = torch.autograd.Variable._execution_engine._engine

    lock = threading.Lock()
    entered = 0  # scopes of all threads


class _Scopes(threading.local):
    depth = 0


_scopes = _Scopes()


class CompiledBackward:
    """A scope in which `backward()` and `torch.autograd.grad` of this thread run as plans.

        with sconce.CompiledBackward():
            for x, y in data:
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                optimizer.step()

    The first backward of a kind is recorded while it runs; the later ones run a plan. Gradients, hooks, errors and
    accumulation are those of LibTorch's engine, which also runs what no plan can: `create_graph`, sparse gradients, formulas
    that read elements. `explain()` says how often, and why. The object may be entered again, in any thread, and keeps its
    plans.
    """

    def __init__(self, **options: Any):
        self._cache = _classes.BackwardCache(json.dumps(options))

    def __enter__(self) -> "CompiledBackward":
        self._cache.enter()
        _Engine.enter()
        return self

    def __exit__(self, *error: Any) -> None:
        _Engine.leave()
        self._cache.leave()

    def explain(self) -> dict:
        return json.loads(self._cache.explain())

    def wait_for_compiles(self) -> None:
        self._cache.wait_for_compiles()


# The options of each class that its update reads, and those that must have one value.
_READ = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "RMSprop": ("lr", "alpha", "eps", "weight_decay", "momentum", "centered"),
    "Adagrad": ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"),
}
_FALSE = ("maximize", "capturable", "differentiable")
_CLASSES = {getattr(torch.optim, name): name for name in _READ}


def _version_of_steps(tensors: dict) -> int:
    """How often the count of steps was written; 0 without a count."""
    return tensors["step"]._version if "step" in tensors else 0


class _Mirror:
    """A PyTorch optimizer's twin in C++: the same parameters and state tensors, its options and counts of steps copied."""

    def __init__(self, optimizer: torch.optim.Optimizer, options: dict):
        self.optimizer = optimizer
        self.options = json.dumps(options)
        self.name = _CLASSES.get(type(optimizer), "")
        self.why_eager = "" if self.name else f"the update of {type(optimizer).__name__} is not known"
        self._twin = None
        self._groups: list[list[torch.Tensor]] = []
        self._numbers: list[dict[str, float] | None] = []

    @property
    def twin(self) -> Any:
        """The twin, made anew after parameters were added."""
        groups = [group["params"] for group in self.optimizer.param_groups]
        if self._twin is None or len(groups) != len(self._groups) or any(
                len(a) != len(b) or any(x is not y for x, y in zip(a, b)) for a, b in zip(groups, self._groups)):
            self._groups = [list(group) for group in groups]
            self.parameters = [parameter for group in groups for parameter in group]
            self._twin = _classes.Optimizer(self.name, self._groups, self.options)
            self._numbers = [None] * len(groups)
            self._steps = [-1] * len(self.parameters)
            self._states: list[dict | None] = [None] * len(self.parameters)
            self._tensors: list[dict] = [{} for _ in self.parameters]
            self._versions = [0] * len(self.parameters)  # of the counts of steps: others may write them
        return self._twin

    def before_step(self) -> str:
        """Takes over what the program has changed. Returns why the step must be PyTorch's; empty if it need not be."""
        twin = self.twin
        if getattr(self.optimizer, "grad_scale", None) is not None or getattr(self.optimizer, "found_inf", None) is not None:
            return "a GradScaler leaves its work to the fused step"
        for number, group in enumerate(self.optimizer.param_groups):
            if any(group.get(name, False) for name in _FALSE):
                return "one of maximize, capturable, differentiable is on"
            if group.get("decoupled_weight_decay", self.name == "AdamW") != (self.name == "AdamW"):
                return "decoupled_weight_decay is not that of the class"
            numbers: dict[str, float] = {}
            for name in _READ[self.name]:
                value = group[name]
                if name == "betas":
                    numbers["beta1"], numbers["beta2"] = value
                else:
                    numbers[name] = value
            if any(isinstance(value, torch.Tensor) for value in numbers.values()):
                return "an option is a tensor"
            if numbers != self._numbers[number]:
                twin.set_options(number, {name: float(value) for name, value in numbers.items()})
                self._numbers[number] = numbers
        state = self.optimizer.state
        for i, parameter in enumerate(self.parameters):
            theirs = state.get(parameter)
            known = self._tensors[i]
            if theirs is self._states[i] and all(theirs.get(name) is known[name] for name in known) and (
                    _version_of_steps(known) == self._versions[i]):
                continue
            self._take_state(i, theirs)
        return ""

    def _take_state(self, i: int, theirs: dict | None) -> None:
        tensors = {name: value for name, value in (theirs or {}).items()
                   if name != "step" and isinstance(value, torch.Tensor)}
        step = (theirs or {}).get("step", 0)
        self._steps[i] = int(step) if tensors else -1
        if tensors:
            self.twin.set_state(i, self._steps[i], tensors)
        elif self._tensors[i]:
            # States are taken away all at once.
            self.twin.clear_states()
            for j, tensors_of_j in enumerate(self._tensors):
                if j != i and tensors_of_j:
                    self.twin.set_state(j, self._steps[j], {n: t for n, t in tensors_of_j.items() if n != "step"})
        self._states[i] = theirs
        self._tensors[i] = tensors | ({"step": step} if isinstance(step, torch.Tensor) and tensors else {})
        self._versions[i] = _version_of_steps(self._tensors[i])

    def forget(self) -> None:
        """Compares nothing with what was known: another has stepped the optimizer."""
        if self.name:
            self._states = [None] * len(self._states)

    def after_step(self) -> None:
        """Tells the program's optimizer of new states and counts of steps."""
        steps = self.twin.steps()
        if steps == self._steps:
            return
        counted, by = [], []  # `join` makes several steps
        for i, (now, before) in enumerate(zip(steps, self._steps)):
            if now == before:
                continue
            if before < 0:
                self._give_state(i, now)
            elif isinstance(self._states[i]["step"], torch.Tensor):
                counted.append(self._states[i]["step"])
                by.append(now - before)
            else:  # from a checkpoint of an older PyTorch
                self._states[i]["step"] = now
            self._steps[i] = now
        if counted:
            with torch.no_grad():
                torch._foreach_add_(counted, by)
            self._versions = [_version_of_steps(known) for known in self._tensors]

    def _give_state(self, i: int, steps: int) -> None:
        state = self.optimizer.state[self.parameters[i]]
        tensors = self.twin.state(i)
        if self.name != "SGD":
            is_double = torch.get_default_dtype() == torch.float64  # as PyTorch counts
            state["step"] = torch.tensor(float(steps), dtype=torch.float64 if is_double else torch.float32)
        state.update({name: tensors[name] for name in tensors})
        self._states[i] = state
        self._tensors[i] = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        self._versions[i] = _version_of_steps(self._tensors[i])


def _own_step(optimizer: torch.optim.Optimizer) -> Callable:
    """The step of the optimizer's class, without the hooks that PyTorch puts around it."""
    step = type(optimizer).step
    return step.__wrapped__ if getattr(step, "hooked", False) else step


class _CapturedStep:
    """What a captured optimizer's `step` does between the hooks."""

    def __init__(self, mirror: _Mirror):
        self.mirror = mirror
        self.eager: dict[str, int] = {}

    def __call__(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        optimizer._opt_called = True
        mirror = self.mirror
        if mirror.why_eager:  # it may call the closure several times
            self.eager[mirror.why_eager] = self.eager.get(mirror.why_eager, 0) + 1
            return _own_step(optimizer)(optimizer, *([] if closure is None else [closure]))
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        reason = mirror.before_step() or mirror.twin.try_step()
        if reason:
            self.eager[reason] = self.eager.get(reason, 0) + 1
            _own_step(optimizer)(optimizer)
            mirror.forget()
        else:
            mirror.after_step()
        return loss

    def explain(self) -> dict:
        mirror = self.mirror
        explanation = json.loads(mirror.twin.explain()) if mirror.name else {
            "optimizer": type(mirror.optimizer).__name__, "why_eager": mirror.why_eager, "steps": 0, "captured_steps": 0}
        explanation["steps"] += sum(self.eager.values())
        reasons = explanation.setdefault("reasons", {})
        for reason, times in self.eager.items():
            reasons[reason] = reasons.get(reason, 0) + times
        return explanation


def capture(optimizer: torch.optim.Optimizer, **options: Any) -> torch.optim.Optimizer:
    """Makes `optimizer.step()` update all parameters by one plan of compiled kernels. Returns the optimizer.

    SGD, Adam, AdamW, RMSprop and Adagrad of dense floating-point parameters on the CPU have plans; everything else takes
    PyTorch's step, and `sconce.explain(optimizer)` says why. The optimizer stays what it was: parameter groups, `state`,
    `state_dict`, schedulers, hooks, closures. Results are PyTorch's but for rounding. `sconce.restore(optimizer)` undoes it.

    `options`: `exact=True` for kernels that round as LibTorch's operators do; `compile`: "blocking" compiles in the first
    step.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"sconce.capture expects an optimizer of torch.optim, not {type(optimizer).__name__}")
    captured = _CapturedStep(_Mirror(optimizer, options))

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        return captured(self, closure)

    hooked = torch.optim.Optimizer.profile_hook_step(step)
    hooked.captured = captured
    hooked.before = vars(optimizer).get("step")
    hooked._wrapped_by_lr_sched = True  # schedulers wrap a step to note that it was called, which `captured` does
    optimizer.step = types.MethodType(hooked, optimizer)
    return optimizer


def captured_step_of(optimizer: torch.optim.Optimizer) -> Any:
    """What `capture` has put there; None for another optimizer."""
    return getattr(optimizer.step, "captured", None)


def release(optimizer: torch.optim.Optimizer) -> bool:
    """Gives the optimizer its own step back. Returns whether it was captured."""
    if captured_step_of(optimizer) is None:
        return False
    before = optimizer.step.before
    del optimizer.step
    if before is not None:
        optimizer.step = before
    return True


def _values(given: Any) -> list:
    return list(given) if isinstance(given, (tuple, list)) else [given]


class TrainStep:
    """Forward, loss, backward and the optimizer's step in one call, which runs as one plan.

        step = sconce.TrainStep(model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters()))
        for x, y in data:
            loss = step(x, y)

    The first call of a kind is recorded while it runs; the later ones run a plan. Parameters, buffers, the optimizer's state
    and its counts are afterward what a plain loop leaves, but for rounding; gradients are None, unless `keep_gradients`. A
    step that no plan can run runs eagerly, and `explain()` says why.

    `model`: a scripted module, or an nn.Module, which is scripted and shares its parameters. `loss`: a module or function of
    the model's result and the targets, scripted or one that `torch.jit.script` can compile. `optimizer`: SGD, Adam, AdamW,
    RMSprop or Adagrad of torch.optim, without `maximize` and options that are tensors. Its hooks are not called.

    An unscripted model or loss is scripted once: what is changed in the original later, other than in its tensors, is not seen.
    Numbers and flags of the loss are constants of a recorded step; make another TrainStep for other ones.

    `clip_norm`, `clip_value`: as `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_` before each step. `accumulate`: adds
    up the gradients of so many calls, of the mean of their losses. `autocast`: torch.bfloat16 or torch.float16, for forward and
    loss. `process_group`: of torch.distributed, after `init_process_group`. All its ranks then train together: the first step
    begins with rank 0's parameters and buffers, and each step updates with the mean of all ranks' gradients. Every rank makes
    as many steps; a rank that has no batch left calls `join`. `synchronize_batch_norm`: batch norms take mean and variance of
    all ranks' batches, as `torch.nn.SyncBatchNorm`, which cannot be scripted. `method`: that of the model whose result the loss
    takes; one other than `forward` needs `@torch.jit.export`. `options`: as of `accelerate`.
    """

    def __init__(self, model: Any, loss: Any, optimizer: torch.optim.Optimizer, *, clip_norm: float | None = None,
                 clip_value: float | None = None, accumulate: int = 1, autocast: torch.dtype | None = None,
                 keep_gradients: bool = False, process_group: Any = None, synchronize_batch_norm: bool = False,
                 method: str = "forward", **options: Any):
        model = model if isinstance(model, torch.jit.ScriptModule) else scripted(model)
        expect_scripted(model, "TrainStep")
        if not model._c._has_method(method):
            raise ValueError(f"sconce.TrainStep: the model has no method '{method}'; it has: "
                             f"{', '.join(model._c._method_names())}. torch.jit.export marks a method of an nn.Module")
        self._mirror = _Mirror(optimizer, options)
        if not self._mirror.name:
            raise TypeError(f"sconce.TrainStep expects one of {', '.join(_READ)} of torch.optim, not "
                            f"{type(optimizer).__name__}; a plain loop with sconce.accelerate and sconce.CompiledBackward takes "
                            "any optimizer")
        if any(each.is_complex() for group in optimizer.param_groups for each in group["params"]):
            raise ValueError("sconce.TrainStep has no update of complex parameters")
        loss = loss if isinstance(loss, torch.jit.ScriptModule) or is_function(loss) else scripted(loss)
        self._model = model
        self._loss = loss
        self._arguments = (model._c, loss.qualified_name if is_function(loss) else loss._c, any_module()._c)
        self._settings = (json.dumps(options), clip_norm, clip_value, accumulate, autocast, keep_gradients,
                          process_group.group_name if process_group is not None else None, synchronize_batch_norm, method)
        self._step = None
        self._close: Callable[[], Any] = lambda: None
        self._twin = None

    def __call__(self, inputs: torch.Tensor | Sequence[Any], targets: torch.Tensor | Sequence[Any],
                 share: float | None = None) -> torch.Tensor:
        """Runs a step. Returns the loss, without history.

        `inputs`: the argument of the method, or a tuple of them; `targets`: what the loss takes besides the result. `share`: what
        the loss counts in the step's, by default 1 / (calls * ranks). For the mean over examples of batches that differ, how
        many of the step's examples are in this batch.
        """
        return self._with_optimizer(lambda step: step.run(_values(inputs), _values(targets), share))

    def join(self) -> int:
        """For a rank that has no batch left: takes part in the other ranks' steps until none has one. Returns how many."""
        return self._with_optimizer(lambda step: step.join())

    def _with_optimizer(self, call: Callable[[Any], Any]) -> Any:
        mirror = self._mirror
        optimizer = mirror.optimizer
        reason = mirror.before_step()
        if reason:
            raise ValueError(f"sconce.TrainStep cannot run this optimizer: {reason}")
        if mirror.twin is not self._twin:
            self._twin = mirror.twin
            self._step = _classes.TrainStep(*self._arguments, self._twin, *self._settings, self._step is None)
            self._close()
            self._close = weakref.finalize(self, self._step.close)  # also when the program ends
        optimizer._opt_called = True
        try:
            return call(self._step)
        finally:
            mirror.after_step()

    def explain(self) -> dict:
        """`by_plan`, `updated_by_plan` and `eager`: how calls were run; `reasons`: why not by plan; `plans`; `optimizer`."""
        if self._step is None:
            return {"by_plan": 0, "updated_by_plan": 0, "eager": 0, "reasons": {}, "plans": []}
        return json.loads(self._step.explain())

    def wait_for_compiles(self) -> None:
        if self._step is not None:
            self._step.wait_for_compiles()
