// The caller's autocast: compiled plans against LibTorch's interpreter under the same autocast, with and without gradients.
#include "tests/support/graphs.h"

#include "base/exception_message.h"

#include <sconce/graph_executor.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>

namespace sconce::callers_autocast {
namespace {

using sconce::testing::graph_of_source;
using sconce::testing::message_of;
using Values = std::vector<c10::IValue>;

// An outermost autocast region.
class Region {
 public:
  explicit Region(at::ScalarType dtype, bool keeps_casts = true)
      : dtype_before_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_cache_enabled(keeps_casts);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Region() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_cache_enabled(true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
    at::autocast::clear_cache();
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  at::ScalarType dtype_before_;
};

// A function, run by LibTorch's interpreter with optimization off.
class Reference {
 public:
  explicit Reference(const std::string& source) {
    unit_.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  }
  Values run(Values arguments) {
    const bool before = torch::jit::getGraphExecutorOptimize();
    torch::jit::setGraphExecutorOptimize(false);
    try {
      unit_.get_function("f").run(arguments);
    } catch (...) {
      torch::jit::setGraphExecutorOptimize(before);
      throw;
    }
    torch::jit::setGraphExecutorOptimize(before);
    return arguments;
  }

 private:
  torch::jit::CompilationUnit unit_;
};

std::vector<at::Tensor> tensors_in(const Values& values) {
  std::vector<at::Tensor> found;
  for (const c10::IValue& value : values) {
    value.visit([&](const c10::IValue& each) {
      if (each.isTensor() && each.toTensor().defined()) {
        found.push_back(each.toTensor());
      }
      return false;
    });
  }
  return found;
}

// The results of a call, and the gradients of its arguments after it.
struct Answer {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> gradients;
};

using Runner = std::function<Values(Values)>;

Answer answer_of(const Runner& run, const Values& arguments, const std::function<std::unique_ptr<Region>()>& region) {
  Answer answer;
  at::manual_seed(5);
  Values results;
  {
    const auto autocast = region();
    results = run(arguments);
  }
  answer.results = tensors_in(results);
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> incoming;
  std::vector<at::Tensor> leaves;
  at::manual_seed(6);
  for (const at::Tensor& result : answer.results) {
    if (result.requires_grad()) {
      outputs.push_back(result);
      incoming.push_back(at::randn(result.sizes()).to(result.scalar_type()));
    }
  }
  for (const at::Tensor& argument : tensors_in(arguments)) {
    if (argument.requires_grad()) {
      leaves.push_back(argument);
    }
  }
  if (!outputs.empty() && !leaves.empty()) {
    answer.gradients = torch::autograd::grad(outputs, leaves, incoming, std::nullopt, false, /*allow_unused=*/true);
  }
  return answer;
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!got.defined()) {
    return;
  }
  EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  EXPECT_EQ(got.requires_grad(), expected.requires_grad()) << what;
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  if (got.numel() > 0) {
    const auto wide = [](const at::Tensor& tensor) {
      const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.detach()) : tensor.detach();
      return real.to(at::kDouble);
    };
    const double scale = std::max(1.0, wide(expected).abs().max().item<double>());
    EXPECT_LE((wide(got) - wide(expected)).abs().max().item<double>(), tolerance * scale) << what;
  }
}

void expect_same(const Answer& got, const Answer& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.results.size(), expected.results.size()) << what;
  for (size_t i = 0; i < got.results.size(); ++i) {
    expect_near(got.results[i], expected.results[i], tolerance, what + ", result " + std::to_string(i));
  }
  ASSERT_EQ(got.gradients.size(), expected.gradients.size()) << what;
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    expect_near(got.gradients[i], expected.gradients[i], tolerance, what + ", gradient " + std::to_string(i));
  }
}

Options blocking() { return Options().compile(CompileMode::kBlocking).min_differentiable_nodes(1); }

bool has_specialized_plan(const Explanation& explanation) {
  return std::any_of(explanation.plans.begin(), explanation.plans.end(),
                     [](const PlanExplanation& plan) { return plan.tier == Tier::kRanks; });
}

std::string why_generic(const Explanation& explanation) {
  const auto& reasons = explanation.plans.at(0).why_generic;
  return reasons.empty() ? "" : reasons.back();
}

struct Program {
  const char* name;
  const char* source;
  std::function<Values()> arguments;
  bool trains = true;         // floating arguments may require gradients
  bool takes_float16 = true;  // oneDNN's LSTM does not on every machine
  double tolerance = 0.03;    // some roundings to bfloat16
};

at::Tensor normal(std::initializer_list<int64_t> sizes) { return at::randn(sizes); }
at::Tensor classes(int64_t count) { return at::randint(0, 4, {count}, at::kLong); }

const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"mlp", R"(
def f(x, w1, b1, w2, b2):
    return torch.linear(torch.relu(torch.linear(x, w1, b1)), w2, b2)
)",
       [] { return Values{normal({4, 8}), normal({16, 8}), normal({16}), normal({4, 16}), normal({4})}; }},
      {"shared_activation", R"(
def f(x, w1, w2):
    h = torch.tanh(x)
    return h @ w1 + h @ w2 + h.sum()
)",
       [] { return Values{normal({4, 8}), normal({8, 6}), normal({8, 6})}; }},
      {"encoder", R"(
def f(x, w_qkv, b_qkv, w_out, b_out, gain, shift, w1, w2):
    n, t, d = x.size(0), x.size(1), x.size(2)
    q, k, v = torch.linear(x, w_qkv, b_qkv).chunk(3, -1)
    q = q.reshape(n, t, 2, d // 2).transpose(1, 2)
    k = k.reshape(n, t, 2, d // 2).transpose(1, 2)
    v = v.reshape(n, t, 2, d // 2).transpose(1, 2)
    a = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1)
    y = torch.linear((a @ v).transpose(1, 2).reshape(n, t, d), w_out, b_out)
    x = torch.layer_norm(x + y, [d], gain, shift)
    return x + torch.linear(torch.gelu(torch.linear(x, w1)), w2)
)",
       [] {
         return Values{normal({2, 5, 8}), normal({24, 8}), normal({24}),    normal({8, 8}), normal({8}),
                       normal({8}),       normal({8}),     normal({16, 8}), normal({8, 16})};
       }},
      {"attention", R"(
def f(q, k, v):
    return torch.scaled_dot_product_attention(q, k, v)
)",
       [] { return Values{normal({2, 2, 5, 8}), normal({2, 2, 5, 8}), normal({2, 2, 5, 8})}; }},
      {"lstm_loop", R"(
def f(xs, h, c, w_ih, w_hh, b_ih, b_hh):
    for i in range(xs.size(0)):
        h, c = torch.lstm_cell(xs[i], [h, c], w_ih, w_hh, b_ih, b_hh)
    return h, c
)",
       [] {
         return Values{normal({3, 2, 4}), normal({2, 5}), normal({2, 5}), normal({20, 4}),
                       normal({20, 5}),   normal({20}),   normal({20})};
       }},
      {"gru_cell", R"(
def f(x, h, w_ih, w_hh, b_ih, b_hh):
    g = torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.gru_cell(x, g, w_ih, w_hh), torch.rnn_tanh_cell(x, g, w_ih[:5], w_hh[:5], b_ih[:5], b_hh[:5])
)",
       [] { return Values{normal({2, 4}), normal({2, 5}), normal({15, 4}), normal({15, 5}), normal({15}), normal({15})}; }},
      {"loop_of_cells", R"(
def f(xs, h, w, u):
    for i in range(xs.size(0)):
        h = torch.tanh(xs[i] @ w + h @ u)
    return h
)",
       [] { return Values{normal({3, 2, 4}), normal({2, 5}), normal({4, 5}), normal({5, 5})}; }},
      {"convolution_and_norm", R"(
def f(x, w, gain, shift, mean, var):
    y = torch.batch_norm(torch.conv2d(x, w, None, [1, 1], [1, 1]), gain, shift, mean.detach(), var.detach(), True, 0.1, 1e-5, False)
    return torch.max_pool2d(torch.relu(y), [2, 2])
)",
       [] {
         return Values{normal({2, 3, 8, 8}), normal({4, 3, 3, 3}), normal({4}), normal({4}), at::zeros({4}), at::ones({4})};
       }},
      {"losses", R"(
def f(x, y, target):
    a = torch.cross_entropy_loss(x, target)
    b = torch.mse_loss(x, y) + torch.l1_loss(x, y) + torch.smooth_l1_loss(x, y)
    c = torch.binary_cross_entropy_with_logits(x, torch.sigmoid(y.detach()))
    return a, b, c, torch.nll_loss_nd(torch.log_softmax(x, -1), target), torch.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1))
)",
       [] { return Values{normal({6, 4}), normal({6, 4}), classes(6)}; }},
      {"losses_of_products", R"(
def f(x, w, target):
    logits = x @ w
    p = torch.sigmoid(logits)
    return torch.cross_entropy_loss(logits, target), torch.binary_cross_entropy(p, torch.sigmoid(x[:, :4].detach()))
)",
       [] { return Values{normal({6, 4}), normal({4, 4}), classes(6)}; }},
      {"products", R"(
def f(a, b, c, v):
    x = torch.bmm(a, b)
    y = torch.baddbmm(c, a, b, beta=0.5, alpha=2.0)
    z = torch.einsum("bij,bjk->bik", [a, b])
    return x, y, z, torch.mv(a[0], v), torch.addmm(c[0], a[0], b[0]), torch.dot(v, v), torch.outer(v, v)
)",
       [] { return Values{normal({2, 3, 4}), normal({2, 4, 5}), normal({2, 3, 5}), normal({4})}; }},
      {"norms", R"(
def f(x, w):
    h = x @ w
    return (torch.softmax(h, -1), torch.softmax(x, -1), h.norm(), x.cumsum(0), h.cumsum(0), torch.pow(h, 2.0),
            torch.layer_norm(h, [h.size(-1)]), h.mean(-1), h.prod(-1), h.std(), torch.exp(h * 0.1), h.sum())
)",
       [] { return Values{normal({3, 4}), normal({4, 5})}; }},
      {"joins", R"(
def f(x, w, n):
    h = x @ w
    return (torch.cat([h, x], 1), torch.stack([h, h + 1.0]), torch.cat([h, n], 1), torch.cat([h, h.double()], 0),
            torch.hstack([h, x]), torch.stack([h, x]))
)",
       [] { return Values{normal({3, 4}), normal({4, 4}), at::ones({3, 2}, at::kLong)}; }},
      {"join_of_list", R"(
def f(x, w):
    parts = [x]
    for i in range(x.size(0)):
        parts.append(parts[-1] @ w)
    return torch.cat(parts, 0)
)",
       [] { return Values{normal({3, 4}), normal({4, 4})}; }},
      {"mixed_operands", R"(
def f(x, w, d):
    h = x @ w
    n = torch.arange(x.size(0)).unsqueeze(1)
    return h * 2, h + x, h * torch.tensor(3.0), h + n, d @ d, h.double() @ d, torch.where(h > 0, h, x), h * 0.5 + 1
)",
       [] { return Values{normal({4, 4}), normal({4, 4}), at::randn({4, 4}, at::kDouble)}; }},
      {"images", R"(
def f(x, w, slopes):
    y = torch.prelu(torch.conv2d(x, w), slopes)
    up = torch.upsample_bilinear2d(y, [8, 8], False)
    padded = torch.pad(y, [1, 1, 1, 1], "reflect")
    return up, padded, torch.pad(y, [1, 1]), torch.adaptive_avg_pool2d(y, [1, 1]), torch.avg_pool2d(x, [2, 2])
)",
       [] { return Values{normal({2, 3, 6, 6}), normal({4, 3, 3, 3}), normal({4})}; }},
      {"other_convolutions", R"(
def f(x, w, y, v, t):
    return torch.conv1d(x, w, None), torch.conv_transpose2d(y, v, None), torch.conv3d(t, t[:1], None), torch.conv1d(x, w, None, padding="same")
)",
       [] {
         return Values{normal({2, 3, 8}), normal({4, 3, 3}), normal({2, 3, 4, 4}), normal({3, 2, 2, 2}),
                       normal({2, 1, 3, 3, 3})};
       }},
      {"layers", R"(
def f(x, h, w_ih, w_hh, b_ih, b_hh):
    return torch.gru(x, h, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, False, False, False)
)",
       [] {
         return Values{normal({3, 2, 4}), normal({1, 2, 5}), normal({15, 4}), normal({15, 5}), normal({15}), normal({15})};
       }},
      {"lstm_layer", R"(
def f(x, h, c, w_ih, w_hh, b_ih, b_hh):
    return torch.lstm(x, [h, c], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, False, False, False)
)",
       [] {
         return Values{normal({3, 2, 4}), normal({1, 2, 5}), normal({1, 2, 5}), normal({20, 4}),
                       normal({20, 5}),   normal({20}),      normal({20})};
       },
       /*trains=*/false,
       /*takes_float16=*/false},
      {"in_place", R"(
def f(x, w):
    h = x @ w
    h.add_(1.0)
    h.mul_(2.0)
    y = x.clone()
    y[0] = h[0]
    return h.relu_(), y
)",
       [] { return Values{normal({4, 4}), normal({4, 4})}; }},
      {"branches", R"(
def f(x, w):
    y = (x @ w) @ w
    if bool((y.sum() > 0).item()):
        y = y @ w
    else:
        y = torch.sigmoid(y) @ w
    return y
)",
       [] { return Values{normal({4, 4}), normal({4, 4}) * 0.5}; }},
      {"dtypes_asked", R"(
def f(x, w):
    h = x @ w
    if h.dtype == 6:  # float32
        h = h + 100.0
    n = 0
    if torch.is_autocast_cpu_enabled():
        n = 1
    return h + n, h.float() @ w, h.to(x.dtype)
)",
       [] { return Values{normal({4, 4}), normal({4, 4})}; }},
      // What lower_autocast makes of a block of the script: casts, among operators under the caller's autocast.
      {"blocks_of_the_script", R"(
def f(x, w):
    a = torch._autocast_to_reduced_precision(x, False, True, 5, 15) @ torch._autocast_to_reduced_precision(w, False, True, 5, 15)
    return a, torch._autocast_to_full_precision(a, False, True) @ w, torch.exp(torch._autocast_to_full_precision(a, False, True))
)",
       [] { return Values{normal({3, 3}), normal({3, 3})}; }},
      {"linear_algebra", R"(
def f(x):
    return torch.linalg_inv(x), torch.matrix_exp(x * 0.1), torch.linalg_multi_dot([x, x, x]), torch.cdist(x, x + 1.0), x.trace()
)",
       [] { return Values{at::eye(4) * 3 + at::randn({4, 4}) * 0.1}; }},
  };
  return all;
}

std::unique_ptr<GraphExecutor> executor_of(const std::string& source, const Options& options) {
  return std::make_unique<GraphExecutor>(graph_of_source(source), "f", options);
}

Runner run_of(GraphExecutor& executor) {
  return [&executor](Values stack) {
    executor.run(stack);
    return stack;
  };
}
Runner run_of(Reference& reference) {
  return [&reference](Values stack) { return reference.run(std::move(stack)); };
}

void set_requires_grad(const Values& arguments) {
  for (const at::Tensor& tensor : tensors_in(arguments)) {
    if (tensor.is_floating_point()) {
      tensor.set_requires_grad(true);
    }
  }
}

Values copies_of(const Values& arguments) {
  Values copies;
  for (const c10::IValue& argument : arguments) {
    const at::Tensor& tensor = argument.toTensor();
    copies.emplace_back(tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  }
  return copies;
}

// Returns the words with which the call raises.
template <typename Run, typename MakeRegion>
std::optional<std::string> raised_by(const Run& run, const Values& arguments, const MakeRegion& region) {
  try {
    answer_of(run, copies_of(arguments), region);
    return std::nullopt;
  } catch (const std::exception& raised) {
    return one_line_message(raised);
  }
}

void check_program(const Program& program, at::ScalarType dtype, bool with_grad, bool keeps_casts) {
  const std::string what = std::string(program.name) + (with_grad ? " with gradients" : "") + " under " +
                           c10::toString(dtype) + (keeps_casts ? "" : " without cache");
  const at::AutoGradMode grad_mode(with_grad);
  Reference reference(program.source);
  const auto executor = executor_of(program.source, blocking());
  at::manual_seed(3);
  const Values arguments = program.arguments();
  if (with_grad) {
    set_requires_grad(arguments);
  }
  const auto region = [&] { return std::make_unique<Region>(dtype, keeps_casts); };
  // oneDNN has no bfloat16 LSTM for processors without AVX-512.
  if (const auto words = raised_by(run_of(reference), arguments, region)) {
    for (int call = 1; call <= 5; ++call) {
      EXPECT_EQ(raised_by(run_of(*executor), arguments, region), words) << what << ", call " << call;
    }
    return;
  }
  for (int call = 1; call <= 5; ++call) {
    const Values ours = copies_of(arguments);
    const Values theirs = copies_of(arguments);
    const Answer expected = answer_of(run_of(reference), theirs, region);
    const Answer got = answer_of(run_of(*executor), ours, region);
    expect_same(got, expected, program.tolerance, what + ", call " + std::to_string(call));
    for (size_t i = 0; i < ours.size(); ++i) {
      expect_near(ours[i].toTensor(), theirs[i].toTensor(), program.tolerance, what + ", argument " + std::to_string(i));
    }
  }
  EXPECT_TRUE(has_specialized_plan(executor->explain())) << what << ": " << why_generic(executor->explain());
}

void PrintTo(const Program& program, std::ostream* out) { *out << program.source; }

class AutocastPrograms : public ::testing::TestWithParam<Program> {};
INSTANTIATE_TEST_SUITE_P(All, AutocastPrograms, ::testing::ValuesIn(programs()),
                         [](const auto& program) { return std::string(program.param.name); });

TEST_P(AutocastPrograms, GiveWhatTheInterpreterGives) {
  check_program(GetParam(), at::kBFloat16, /*with_grad=*/false, /*keeps_casts=*/true);
  if (GetParam().trains) {
    check_program(GetParam(), at::kBFloat16, /*with_grad=*/true, /*keeps_casts=*/true);
  }
}

TEST_P(AutocastPrograms, WithoutTheCache) {
  check_program(GetParam(), at::kBFloat16, GetParam().trains, /*keeps_casts=*/false);
}

TEST_P(AutocastPrograms, ToFloat16) {
  if (GetParam().takes_float16) {
    check_program(GetParam(), at::kHalf, GetParam().trains, /*keeps_casts=*/true);
  }
}

TEST(Autocast, OnInSomeCallsOfOneFunction) {
  const Program& program = programs().front();
  Reference reference(program.source);
  const auto executor = executor_of(program.source, blocking());
  Values arguments = program.arguments();
  set_requires_grad(arguments);
  const std::vector<std::optional<at::ScalarType>> calls = {at::kBFloat16, std::nullopt, at::kHalf,
                                                            at::kBFloat16, std::nullopt, at::kHalf};
  for (const auto dtype : calls) {
    const auto region = [&] { return dtype ? std::make_unique<Region>(*dtype) : nullptr; };
    const Answer expected = answer_of(run_of(reference), arguments, region);
    const Answer got = answer_of(run_of(*executor), arguments, region);
    expect_same(got, expected, dtype ? 0.03 : 1e-5, dtype ? c10::toString(*dtype) : "off");
  }
  const Explanation explanation = executor->explain();
  std::string specs;
  for (const PlanExplanation& plan : explanation.plans) {
    specs += plan.specs.empty() ? "" : plan.specs.front() + "\n";
  }
  EXPECT_THAT(specs, ::testing::HasSubstr("autocast to BFloat16"));
  EXPECT_THAT(specs, ::testing::HasSubstr("autocast to Half"));
}

// ---- gradients of casts -------------------------------------------------------------------------------------------------

// 256 + 1 is 257 in float32 and 256 in bfloat16.
at::Tensor gradient_of_two(const Runner& run, bool keeps_casts, bool in_one_region) {
  const at::Tensor w = at::ones({1, 1}).requires_grad_(true);
  at::Tensor loss;
  auto region = std::make_unique<Region>(at::kBFloat16, keeps_casts);
  for (const double factor : {256.0, 1.0}) {
    const at::Tensor result = run({at::full({1, 1}, factor), w})[0].toTensor();
    loss = loss.defined() ? loss + result.to(at::kFloat) : result.to(at::kFloat);
    if (!in_one_region) {
      region = nullptr;
      region = std::make_unique<Region>(at::kBFloat16, keeps_casts);
    }
  }
  region = nullptr;
  loss.sum().backward();
  return w.grad();
}

TEST(Autocast, CallsInOneRegionShareTheCastOfALeaf) {
  const char* const source = "def f(x, w):\n    return x @ w\n";
  Reference reference(source);
  for (const bool keeps_casts : {true, false}) {
    for (const bool in_one_region : {true, false}) {
      const auto executor = executor_of(source, blocking());
      const at::Tensor expected = gradient_of_two(run_of(reference), keeps_casts, in_one_region);
      EXPECT_EQ(expected.item<double>(), keeps_casts && in_one_region ? 256 : 257);
      EXPECT_TRUE(at::equal(gradient_of_two(run_of(*executor), keeps_casts, in_one_region), expected));
      EXPECT_TRUE(has_specialized_plan(executor->explain()));
    }
  }
}

TEST(Autocast, OneCallSharesTheCastOfALeafAndNoOther) {
  const char* const of_leaf = "def f(x, y, w):\n    return (x @ w).float() + (y @ w).float()\n";
  const char* const of_other = "def f(x, y, w):\n    h = w * 1.0\n    return (x @ h).float() + (y @ h).float()\n";
  for (const char* const source : {of_leaf, of_other}) {
    Reference reference(source);
    const auto executor = executor_of(source, blocking());
    const auto gradient = [&](const Runner& run) {
      const at::Tensor w = at::ones({1, 1}).requires_grad_(true);
      auto region = std::make_unique<Region>(at::kBFloat16);
      const at::Tensor result = run({at::full({1, 1}, 256.0), at::ones({1, 1}), w})[0].toTensor();
      region = nullptr;
      result.sum().backward();
      return w.grad();
    };
    const at::Tensor expected = gradient(run_of(reference));
    EXPECT_EQ(expected.item<double>(), source == of_leaf ? 256 : 257);
    for (int call = 1; call <= 3; ++call) {
      EXPECT_TRUE(at::equal(gradient(run_of(*executor)), expected)) << source << "call " << call;
    }
  }
}

// ---- what is rejected, and what is left out -----------------------------------------------------------------------------

TEST(Autocast, RejectsWhatLibTorchRejects) {
  const char* const source = "def f(x, y):\n    return torch.cat([x, y])\n";
  Reference reference(source);
  const auto executor = executor_of(source, blocking());
  const Values arguments = {at::ones({2}, at::kHalf), at::ones({2})};
  const auto call = [&](const Runner& run) {
    return message_of([&] {
      const Region region(at::kBFloat16);
      run(arguments);
    });
  };
  EXPECT_THAT(call(run_of(reference)), ::testing::HasSubstr("Unexpected floating ScalarType"));
  EXPECT_THAT(call(run_of(*executor)), ::testing::HasSubstr("Unexpected floating ScalarType"));
  const Region region(at::kHalf);
  EXPECT_TRUE(sconce::testing::agree(run_of(*executor)(arguments), reference.run(arguments)));
}

TEST(Autocast, OfAnotherDeviceIsNotCompiled) {
  const auto executor = executor_of("def f(x, w):\n    return x @ w\n", blocking());
  const Values arguments = {at::ones({2, 2}), at::ones({2, 2})};
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  run_of (*executor)(arguments);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  EXPECT_THAT(why_generic(executor->explain()), ::testing::HasSubstr("autocast is on for a device other than the CPU"));
}

// ---- steps --------------------------------------------------------------------------------------------------------------

// Returns the explanation of the function's plan under autocast.
PlanExplanation plan_of(const char* source, const Values& arguments) {
  const auto executor = executor_of(source, blocking());
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 3; ++call) {
    const Region region(at::kBFloat16);
    run_of (*executor)(arguments);
  }
  for (const PlanExplanation& plan : executor->explain().plans) {
    if (plan.tier == Tier::kRanks) {
      return plan;
    }
  }
  ADD_FAILURE() << "no plan: " << why_generic(executor->explain());
  return {};
}

TEST(Autocast, StepsArePreparedAndOthersSayWhy) {
  const PlanExplanation mlp = plan_of(programs().front().source, programs().front().arguments());
  EXPECT_EQ(mlp.ordinary_steps, 0) << mlp.text;
  const PlanExplanation einsum =
      plan_of("def f(x):\n    return torch.einsum(\"ij,jk->ik\", [x, x]).relu()\n", {normal({3, 3})});
  ASSERT_EQ(einsum.not_prepared.size(), 1) << einsum.text;
  EXPECT_EQ(einsum.not_prepared[0].op, "aten::einsum");
  EXPECT_EQ(einsum.not_prepared[0].reason, NotPrepared::kAutocast);
  EXPECT_THAT(einsum.text, ::testing::HasSubstr("[with autocast]"));
}

}  // namespace
}  // namespace sconce::callers_autocast
