// Hooks and other host code in a compiled backward: the same calls, in the same order, with the same gradients as the
// engine's.
#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/types.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>

namespace sconce {
namespace {

namespace autograd = torch::autograd;
using Tensors = std::vector<at::Tensor>;

at::Tensor random_leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

// Notes what hooks see.
struct Log {
  std::vector<std::string> lines;
  void add(const std::string& who, const at::Tensor& gradient) {
    lines.push_back(who + " " + (gradient.defined() ? std::to_string(gradient.sum().item<double>()) : "undefined"));
  }
};

struct BeforeNode final : autograd::FunctionPreHook {
  BeforeNode(Log& log, double factor) : log_(log), factor_(factor) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    log_.add("before node", gradients.front());
    autograd::variable_list scaled = gradients;
    scaled.front() = scaled.front() * factor_;
    return scaled;
  }
  Log& log_;
  double factor_;
};

struct AfterNode final : autograd::FunctionPostHook {
  explicit AfterNode(Log& log) : log_(log) {}
  autograd::variable_list operator()(const autograd::variable_list& results, const autograd::variable_list& given) override {
    log_.add("after node, given", given.front());
    log_.add("after node, result", results.front());
    return results;
  }
  Log& log_;
};

struct AfterAccumulation final : autograd::PostAccumulateGradHook {
  explicit AfterAccumulation(Log& log) : log_(log) {}
  void operator()(const autograd::Variable& leaf) override { log_.add("accumulated", leaf.grad()); }
  Log& log_;
};

// A model with every kind of hook. `factor` scales what hooks return.
at::Tensor hooked_loss(const at::Tensor& x, const at::Tensor& w, Log& log, double factor) {
  x.register_hook([&log, factor](const at::Tensor& gradient) {
    log.add("leaf", gradient);
    return gradient * factor;
  });
  autograd::impl::set_post_acc_grad_hooks(x, std::make_unique<AfterAccumulation>(log));
  const at::Tensor product = x * w;
  product.register_hook([&log](const at::Tensor& gradient) { log.add("tensor", gradient); });
  product.retain_grad();
  const at::Tensor middle = product.sin();
  middle.grad_fn()->add_pre_hook(std::make_unique<BeforeNode>(log, factor));
  middle.grad_fn()->add_post_hook(std::make_unique<AfterNode>(log));
  return (middle * middle).sum() + (w * w).sum();
}

struct Outcome {
  std::vector<std::string> lines;
  Tensors gradients;
};

Outcome outcome_of(double factor, uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor x = random_leaf({3});
  const at::Tensor w = random_leaf({3});
  Log log;
  hooked_loss(x, w, log, factor).backward();
  return {log.lines, {x.grad(), w.grad()}};
}

void expect_same(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.lines, expected.lines);
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(found.gradients[i], expected.gradients[i])) << "gradient " << i;
  }
}

TEST(BackwardHooks, AreCalledInTheEnginesOrder) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  for (uint64_t call = 0; call < 4; ++call) {
    const Outcome expected = outcome_of(2 + static_cast<double>(call), call);
    const CompiledBackward scope(cache);
    expect_same(outcome_of(2 + static_cast<double>(call), call), expected);
  }
  const BackwardExplanation explanation = cache.explain();
  EXPECT_EQ(explanation.by_plan, 3U);
  EXPECT_EQ(explanation.by_engine, 0U);
}

// What hooks return may differ from run to run.
TEST(BackwardHooks, MayActInAnotherWayThanWhenRecorded) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  enum class Result { kGradient, kTransposed, kNothing, kDouble };
  const auto run = [](Result result) {
    at::manual_seed(1);
    const at::Tensor x = random_leaf({3, 3});
    const at::Tensor w = random_leaf({3, 3});
    const at::Tensor product = x.mm(w);
    product.grad_fn()->add_pre_hook([&] {
      struct Hook final : autograd::FunctionPreHook {
        explicit Hook(Result kind) : kind_(kind) {}
        autograd::variable_list operator()(const autograd::variable_list& gradients) override {
          switch (kind_) {
            case Result::kGradient: return gradients;
            case Result::kTransposed: return {gradients.front().t().contiguous().t()};
            case Result::kNothing: return {at::Tensor()};
            case Result::kDouble: return {gradients.front() * 2};
          }
          return gradients;
        }
        Result kind_;
      };
      return std::make_unique<Hook>(result);
    }());
    ((product.tanh() * w).sum() + x.sum()).backward();
    return Tensors{x.grad(), w.grad()};
  };
  for (const Result result :
       {Result::kGradient, Result::kDouble, Result::kTransposed, Result::kNothing, Result::kGradient}) {
    const Tensors expected = run(result);
    const CompiledBackward scope(cache);
    const Tensors found = run(result);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], expected[i])) << static_cast<int>(result) << ", gradient " << i;
    }
  }
  EXPECT_EQ(cache.explain().recorded, 1U);
}

// A gradient to which recorded code added nothing is whole where its other part waits, until the code brings a part, too.
TEST(BackwardHooks, MayBringWhatTheyDidNotWhenRecorded) {
  enum class Wanted { kLeaves, kResults };
  for (const Wanted wanted : {Wanted::kLeaves, Wanted::kResults}) {
    const BackwardCache cache(Options().compile(CompileMode::kBlocking));
    const auto run = [wanted](bool brings) {
      at::manual_seed(1);
      const at::Tensor x = random_leaf({3, 3});
      const at::Tensor w = random_leaf({3, 3});
      struct Hook final : autograd::FunctionPreHook {
        explicit Hook(bool is_on) : brings_(is_on) {}
        autograd::variable_list operator()(const autograd::variable_list& gradients) override {
          return brings_ ? gradients : autograd::variable_list{at::Tensor()};
        }
        bool brings_;
      };
      const at::Tensor product = x.mm(w);
      product.grad_fn()->add_pre_hook(std::make_unique<Hook>(brings));
      const at::Tensor loss = product.tanh().sum() + (x * 3).sum() + w.sum();
      if (wanted == Wanted::kResults) {
        return autograd::grad({loss}, {x, w});
      }
      loss.backward();
      return Tensors{x.grad(), w.grad()};
    };
    for (const bool brings : {false, true, false, true, true}) {
      const Tensors expected = run(brings);
      const CompiledBackward scope(cache);
      const Tensors found = run(brings);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], expected[i])) << brings << ", gradient " << i << "\n" << found[i] << expected[i];
      }
    }
    EXPECT_EQ(cache.explain().recorded, 1U);
  }
}

TEST(BackwardHooks, ThatThrowLeaveTheNextBackwardRight) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const CompiledBackward scope(cache);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = random_leaf({3});
    const at::Tensor middle = x * 2;
    middle.register_hook([call](const at::Tensor& gradient) {
      TORCH_CHECK(call % 2 == 0, "the hook fails");
      return gradient * 3;
    });
    const at::Tensor loss = middle.pow(2).sum();
    if (call % 2 == 0) {
      loss.backward();
      EXPECT_TRUE(at::allclose(x.grad(), 24 * x));
    } else {
      EXPECT_THROW(loss.backward(), c10::Error);
      EXPECT_FALSE(x.grad().defined());
    }
  }
}

// ---- torch::autograd::Function ----------------------------------------------------------------------------------------

struct Scale : autograd::Function<Scale> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    context->save_for_backward({x});
    return x * factor;
  }
  static autograd::tensor_list backward(autograd::AutogradContext* context, const autograd::tensor_list& gradients) {
    // Not the derivative, and it reads an element.
    const double extra = context->get_saved_variables()[0].sum().item<double>() > 0 ? 10 : 20;
    return {gradients[0] * context->saved_data["factor"].toDouble() * extra, at::Tensor()};
  }
};

struct Twice : autograd::Function<Twice> {
  static autograd::tensor_list forward(autograd::AutogradContext* context, const at::Tensor& x) {
    context->set_materialize_grads(false);
    const at::Tensor mask = x > 0;
    context->mark_non_differentiable({mask});
    return {x * 2, mask};
  }
  static autograd::tensor_list backward(autograd::AutogradContext*, const autograd::tensor_list& gradients) {
    return {gradients[0] * 2};
  }
};

TEST(BackwardHooks, FunctionsOfTheUserRunAsTheyAre) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const auto run = [](double sign, double factor) {
    at::manual_seed(4);
    const at::Tensor x = (at::rand({3}) * sign).set_requires_grad(true);
    const at::Tensor y = Twice::apply(Scale::apply(x.sin(), factor))[0];
    (y * x).sum().backward();
    return x.grad();
  };
  for (const auto& [sign, factor] : {std::pair(1.0, 2.0), std::pair(1.0, 3.0), std::pair(-1.0, 2.0), std::pair(-1.0, 5.0)}) {
    const at::Tensor expected = run(sign, factor);
    const CompiledBackward scope(cache);
    EXPECT_TRUE(at::allclose(run(sign, factor), expected)) << sign << ", " << factor;
  }
  EXPECT_EQ(cache.explain().by_plan, 3U);
}

// A checkpoint: backward computes forward again, and runs a backward of its own.
struct Checkpoint : autograd::Function<Checkpoint> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    const at::NoGradGuard no_grad;
    context->save_for_backward({x, w});
    return at::tanh(x * w);
  }
  static autograd::tensor_list backward(autograd::AutogradContext* context, const autograd::tensor_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = saved[0].detach().set_requires_grad(true);
    const at::Tensor w = saved[1].detach().set_requires_grad(true);
    return autograd::grad({at::tanh(x * w)}, {x, w}, {gradients[0]});
  }
};

TEST(BackwardHooks, CheckpointsRunABackwardWithin) {
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  const auto run = [](uint64_t seed) {
    at::manual_seed(seed);
    const at::Tensor x = random_leaf({3});
    const at::Tensor w = random_leaf({3});
    (Checkpoint::apply(x.exp(), w) * w).sum().backward();
    return Tensors{x.grad(), w.grad()};
  };
  for (uint64_t call = 0; call < 3; ++call) {
    const Tensors expected = run(call);
    const CompiledBackward scope(cache);
    const Tensors found = run(call);
    EXPECT_TRUE(at::allclose(found[0], expected[0]) && at::allclose(found[1], expected[1])) << call;
  }
  EXPECT_EQ(cache.explain().by_plan, 2U);
}

}  // namespace
}  // namespace sconce
