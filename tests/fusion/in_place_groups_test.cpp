// Groups that write operands in place.
//
//   SCONCE_GROUPS=20000 build/release/tests/fusion_test --gtest_filter='InPlaceGroups.*'    more generated ones
#include "tests/fusion/element_values.h"
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/part.h"

#include "fusion/group/form_groups.h"
#include "fusion/program/kernel_width.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

constexpr const char* kAdam = R"(
graph(%p : Tensor, %g : Tensor, %m : Tensor, %v : Tensor, %step_size : float, %root : float):
  %one : int = prim::Constant[value=1]()
  %a : float = prim::Constant[value=0.9]()
  %not_a : float = prim::Constant[value=0.1]()
  %b : float = prim::Constant[value=0.999]()
  %not_b : float = prim::Constant[value=0.001]()
  %eps : float = prim::Constant[value=1e-8]()
  %m1 : Tensor = aten::mul_(%m, %a)
  %m2 : Tensor = aten::add_(%m1, %g, %not_a)
  %v1 : Tensor = aten::mul_(%v, %b)
  %v2 : Tensor = aten::addcmul_(%v1, %g, %g, %not_b)
  %s : Tensor = aten::sqrt(%v)
  %d : Tensor = aten::div(%s, %root)
  %e : Tensor = aten::add_(%d, %eps, %one)
  %minus : float = aten::neg(%step_size)
  %p1 : Tensor = aten::addcdiv_(%p, %m, %e, %minus)
  return (%p1)
)";

size_t count_of(const Graph& graph, c10::Symbol kind) {
  size_t count = 0;
  for_each_node(graph.body(), [&](const Node* node) { count += node->kind() == kind ? 1 : 0; });
  return count;
}

// Returns how many kernels the nodes of the text, in a graph of three tensors, become.
size_t kernels_in(const std::string& nodes, const std::string& returned = "%x") {
  auto graph = graph_of(
      "graph(%x : Tensor, %y : Tensor, %z : Tensor):\n  %one : int = prim::Constant[value=1]()\n"
      "  %zero : int = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n" +
      nodes + "  return (" + returned + ")\n");
  form_groups(*graph);
  verify(*graph, "form_groups");
  return count_of(*graph, c10::Symbol::fromQualString("sconce::kernel"));
}

TEST(InPlaceGroups, AStepOfAdamIsOneKernel) {
  auto graph = graph_of(kAdam);
  EXPECT_TRUE(form_groups(*graph));
  verify(*graph, "form_groups");
  EXPECT_EQ(count_of(*graph, c10::Symbol::fromQualString("sconce::kernel")), 1u) << print(*graph);
}

TEST(InPlaceGroups, ReadsAfterAWriteAreOfItsResult) {
  EXPECT_EQ(kernels_in("  %a : Tensor = aten::add_(%x, %y, %one)\n  %b : Tensor = aten::mul(%x, %z)\n", "%b"), 1u);
}

TEST(InPlaceGroups, DoNotReadThroughViewsOfWhatTheyWrite) {
  EXPECT_EQ(kernels_in("  %a : Tensor = aten::add_(%x, %y, %one)\n  %t : Tensor = aten::t(%x)\n"
                       "  %b : Tensor = aten::mul(%t, %z)\n",
                       "%b"),
            2u);
  EXPECT_EQ(kernels_in("  %t : Tensor = aten::t(%x)\n  %b : Tensor = aten::mul(%t, %z)\n"
                       "  %a : Tensor = aten::add_(%x, %y, %one)\n",
                       "%b"),
            2u);
  EXPECT_EQ(kernels_in("  %t : Tensor = aten::t(%x)\n  %a : Tensor = aten::add_(%t, %y, %one)\n"
                       "  %b : Tensor = aten::mul(%x, %z)\n",
                       "%b"),
            2u);
}

TEST(InPlaceGroups, HaveNoViewsOfWhatTheyCompute) {
  // Elements of the view are read after others are written.
  const std::string computed =
      "  %n : Tensor = aten::neg(%x)\n  %t : Tensor = aten::select(%n, %zero, %one)\n"
      "  %b : Tensor = aten::mul(%t, %z)\n";
  const std::string write = "  %a : Tensor = aten::add_(%x, %y, %one)\n";
  EXPECT_EQ(kernels_in(computed, "%b"), 1u);
  EXPECT_EQ(kernels_in(computed + write, "%b"), 2u);
  EXPECT_EQ(kernels_in(write + computed, "%b"), 2u);
}

TEST(InPlaceGroups, AreNotMovedPastReaders) {
  const auto kernels_around = [](const std::string& node) {
    return kernels_in("  %a : Tensor = aten::add_(%x, %y, %one)\n  %n : " + node + "\n  %b : Tensor = aten::mul_(%x, %n)\n");
  };
  EXPECT_EQ(kernels_around("int = aten::dim(%z)"), 1u);
  // Reads the element that is written before it, perhaps.
  EXPECT_EQ(kernels_around("int = aten::Int(%z)"), 2u);
  // Reads none, but raises for a tensor without dimensions.
  EXPECT_EQ(kernels_around("int = aten::size(%z, %zero)"), 2u);
}

// Powers of constants, roots and quotients raise for no number.
TEST(InPlaceGroups, AreMovedPastNumbers) {
  const auto graph = graph_of(R"(
graph(%x : Tensor, %y : Tensor, %step : int, %base : float):
  %one : int = prim::Constant[value=1]()
  %b : float = prim::Constant[value=0.9]()
  %a : Tensor = aten::mul_(%x, %b)
  %p : float = aten::pow(%b, %step)
  %q : float = aten::sub(%one, %p)
  %r : float = aten::sqrt(%q)
  %s : float = aten::div(%one, %r)
  %c : Tensor = aten::add_(%x, %y, %s)
  %t : float = aten::pow(%base, %step)
  %d : Tensor = aten::mul_(%x, %t)
  return (%d)
)");
  form_groups(*graph);
  EXPECT_EQ(count_of(*graph, c10::Symbol::fromQualString("sconce::kernel")), 2u) << print(*graph);
}

TEST(InPlaceGroups, AreForOneParameter) {
  EXPECT_EQ(kernels_in("  %a : Tensor = aten::mul_(%x, %z)\n  %b : Tensor = aten::add_(%x, %z, %one)\n"
                       "  %c : Tensor = aten::mul_(%y, %z)\n  %d : Tensor = aten::add_(%y, %z, %one)\n"),
            2u);
  EXPECT_EQ(kernels_in("  %a : Tensor = aten::mul_(%x, %z)\n  %c : Tensor = aten::mul_(%y, %z)\n"
                       "  %b : Tensor = aten::add_(%x, %z, %one)\n  %d : Tensor = aten::add_(%y, %x, %one)\n"),
            1u);
}

TEST(InPlaceGroups, HaveNoReductions) {
  EXPECT_EQ(kernels_in("  %dims : int[] = prim::Constant[value=[-1]]()\n  %no : bool = prim::Constant[value=0]()\n"
                       "  %a : Tensor = aten::add_(%x, %y, %one)\n  %b : Tensor = aten::sum(%x, %dims, %no, %none)\n",
                       "%b"),
            2u);
}

// ---- calls ----------------------------------------------------------------------------------------------------------

using Values = std::vector<c10::IValue>;

// Runs one graph with kernels and without, on operands of each call that `make` makes twice.
class TwoPlans {
 public:
  explicit TwoPlans(const std::string& text)
      : text_(text),
        kernels_(kernel_lanes()),
        plan_(plan_with_kernels(text, kernels_)),
        ordinary_(std::move(*lower(graph_of(text)))) {}

  // Returns whether a kernel ran.
  template <typename Make>
  bool agree(const Make& make, const std::string& about, double ulps = 0) {
    const size_t runs = kernels_.counts().runs;
    const auto run = [&](const Plan& plan) {
      const Values operands = make();
      auto [results, error] = results_of(plan, operands);
      return std::tuple(operands, results, error.substr(0, error.find(" (in %")));  // without the names of values
    };
    const auto [expected_operands, expected, expected_error] = run(*ordinary_);
    const auto [operands, got, error] = run(*plan_);
    EXPECT_EQ(error, expected_error) << about << "\n" << text_;
    EXPECT_EQ(got.size(), expected.size()) << about << "\n" << text_;
    for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      compare(got[i], expected[i], ulps, about + ", result " + std::to_string(i));
      for (size_t k = 0; k < operands.size(); ++k) {
        EXPECT_EQ(operands[k].isTensor() && got[i].is_same(operands[k].toTensor()),
                  operands[k].isTensor() && expected[i].is_same(expected_operands[k].toTensor()))
            << about << ", result " << i << "\n"
            << text_;
      }
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].isTensor()) {
        const at::Tensor& tensor = operands[k].toTensor();
        compare(tensor, expected_operands[k].toTensor(), ulps, about + ", operand " + std::to_string(k));
        if (!tensor.is_inference()) {
          EXPECT_EQ(tensor._version(), expected_operands[k].toTensor()._version()) << about << ", operand " << k << "\n"
                                                                                   << text_;
        }
      }
    }
    return kernels_.counts().runs != runs;
  }

 private:
  void compare(const at::Tensor& got, const at::Tensor& expected, double ulps, const std::string& about) {
    EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << about << "\n" << text_;
    ASSERT_EQ(got.sizes(), expected.sizes()) << about << "\n" << text_;
    EXPECT_EQ(got.strides(), expected.strides()) << about << "\n" << text_;
    int64_t where = -1;
    EXPECT_LE(distance_between(got, expected, got, Distance{.any_zero = true}, &where), ulps)
        << about << " of " << got.scalar_type() << " at " << where << "\n"
        << text_;
  }

  const std::string text_;
  CountedKernels kernels_;
  const std::unique_ptr<Plan> plan_;
  const std::unique_ptr<Plan> ordinary_;
};

TEST(InPlaceGroups, AgreeWithTheirNodes) {
  const at::NoGradGuard no_grad;
  size_t runs = 0;
  size_t calls = 0;
  const Seeds seeds = seeds_in_part({1, environment_number("SCONCE_GROUPS", 600)});
  for (uint64_t seed = seeds.first; seed < seeds.end() && !HasFailure(); ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kWrites);
    TwoPlans plans(generator.text());
    constexpr std::pair<int64_t, int64_t> kSizes[] = {{4, 5}, {7, 33}, {2, 1}, {4, 5}, {7, 33}};
    for (const auto& [height, width] : kSizes) {
      for (const bool are_shared : {false, true}) {
        uint64_t draws = seed * 7919;
        const auto make = [&, &rows = height, &columns = width] {
          at::manual_seed(seed);
          Values operands = generator.operands(rows, columns);
          const size_t from = draws % operands.size();
          const size_t to = draws / 8 % operands.size();
          const at::Tensor whole = operands[from].toTensor();
          if (are_shared && whole.scalar_type() == operands[to].toTensor().scalar_type()) {
            // The same tensor twice, a view of it, or what overlaps it in part.
            const uint64_t kind = whole.dim() == 3 ? draws / 64 % 3 : 0;
            const at::Tensor twice = at::cat({whole.unsqueeze(0), whole.unsqueeze(0)}).flatten(0, kind == 2 ? 1 : 0);
            operands[from] = kind == 2 ? twice.slice(0, 0, 3) : whole;
            operands[to] = kind == 2 ? twice.slice(0, 1, 4) : kind == 1 ? whole.view_as(whole) : whole;
          }
          return operands;
        };
        const std::string about =
            "seed " + std::to_string(seed) + (are_shared ? ", shared" : "") + ", width " + std::to_string(width);
        ++calls;
        runs += plans.agree(make, about) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(runs * 2, calls) << "most calls run without kernels";
}

Values adam_operands(at::IntArrayRef sizes) {
  at::manual_seed(1);
  return {at::rand(sizes) + 1, at::randn(sizes), at::randn(sizes), at::rand(sizes) + 0.1, 0.01, 0.5};
}

TEST(InPlaceGroups, AStepOfAdamAgrees) {
  const at::NoGradGuard no_grad;
  TwoPlans plans(kAdam);
  for (const int64_t size : {3, 64, 64, 1000, 3, 0, 1}) {
    EXPECT_TRUE(plans.agree([&] { return adam_operands({size, 5}); }, std::to_string(size), /*ulps=*/2));
  }
  // One kernel for each layout: that of the parameter must read the state before the other one writes it.
  const auto transposed = [&] {
    Values operands = adam_operands({4, 6});
    operands[2] = at::randn({6, 4}).t();
    return operands;
  };
  EXPECT_TRUE(plans.agree(transposed, "one transposed", 2));
  const auto all_transposed = [&] {
    Values operands = adam_operands({4, 6});
    for (const size_t i : {0, 1, 2, 3}) {
      operands[i] = operands[i].toTensor().t();
    }
    return operands;
  };
  EXPECT_TRUE(plans.agree(all_transposed, "all transposed", 2));
}

TEST(InPlaceGroups, RunWhereMemoryIsDisjointAlone) {
  const at::NoGradGuard no_grad;
  TwoPlans plans(R"(
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add_(%x, %y, %one)
  %b : Tensor = aten::mul(%y, %y)
  %c : Tensor = aten::mul_(%a, %b)
  return (%c)
)");
  const auto halves = [](int64_t first, int64_t second) {
    return [=] {
      const at::Tensor both = at::arange(40, at::kFloat);
      return Values{both.slice(0, first, first + 16), both.slice(0, second, second + 16)};
    };
  };
  EXPECT_TRUE(plans.agree(halves(0, 16), "side by side"));
  EXPECT_TRUE(plans.agree(halves(16, 0), "side by side, the other first"));
  EXPECT_FALSE(plans.agree(halves(0, 0), "the same memory"));
  EXPECT_FALSE(plans.agree(halves(0, 1), "memory that overlaps"));  // LibTorch raises
  EXPECT_TRUE(plans.agree(halves(0, 20), "apart"));
  const auto expanded = [] { return Values{at::ones({1}).expand({16}), at::ones({16})}; };
  EXPECT_FALSE(plans.agree(expanded, "an expanded target"));  // LibTorch raises
  const auto rows = [] { return Values{at::ones({4, 9}).slice(1, 0, 5), at::ones({4, 5})}; };
  EXPECT_TRUE(plans.agree(rows, "parts of rows"));
  const auto columns = [] { return Values{at::ones({4, 9}).slice(1, 0, 9, 2), at::ones({4, 5})}; };
  EXPECT_FALSE(plans.agree(columns, "elements apart"));
  const auto larger = [] { return Values{at::ones({1, 5}), at::ones({4, 5})}; };
  EXPECT_FALSE(plans.agree(larger, "a larger operand"));  // LibTorch raises
  const auto as_strided = [] { return Values{at::ones({20}).as_strided({4, 5}, {2, 1}), at::ones({4, 5})}; };
  EXPECT_FALSE(plans.agree(as_strided, "rows that overlap"));
}

// What is written in one nest of loops is read in another.
TEST(InPlaceGroups, ReadWhatTheyWriteInOtherShapes) {
  const at::NoGradGuard no_grad;
  TwoPlans counts(R"(
graph(%count : Tensor, %x : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add_(%count, %one, %one)
  %b : Tensor = aten::mul(%x, %a)
  %c : Tensor = aten::mul_(%x, %a)
  return (%b, %c)
)");
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(counts.agree([] { return Values{at::full({}, 3.0), at::rand({4, 5}).fill_(0.3)}; }, "a count"));
    EXPECT_TRUE(counts.agree([] { return Values{at::full({5}, 3.0), at::full({4, 5}, 0.3)}; }, "rows"));
  }
  // Each of two shapes reads what the other one writes.
  TwoPlans both(R"(
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add_(%x, %y, %one)
  %b : Tensor = aten::mul_(%y, %x)
  return (%b)
)");
  EXPECT_FALSE(both.agree([] { return Values{at::full({4, 6}, 2.0), at::full({6, 4}, 3.0).t()}; }, "crossed"));
  EXPECT_TRUE(both.agree([] { return Values{at::full({4, 6}, 2.0), at::full({4, 6}, 3.0)}; }, "of one layout"));
}

constexpr const char* kUpdate = R"(
graph(%p : Tensor, %g : Tensor, %rate : float):
  %a : Tensor = aten::mul_(%p, %rate)
  %b : Tensor = aten::sub_(%a, %g, %rate)
  return (%b)
)";

TEST(InPlaceGroups, MindAutograd) {
  TwoPlans plans(kUpdate);
  const auto leaf = [] { return Values{at::ones({8}).requires_grad_(), at::ones({8}), 0.5}; };
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(plans.agree(leaf, "a leaf without grad mode"));
  }
  CountedKernels kernels(kernel_lanes());
  const auto plan = plan_with_kernels(kUpdate, kernels);
  torch::jit::Stack stack = leaf();
  EXPECT_THROW(run_plan(*plan, stack, AutogradUse::kPerStep), c10::Error);
  // Backward of the square needs what the update overwrites.
  at::Tensor x = at::ones({8}).requires_grad_();
  at::Tensor p = x * 2;
  const at::Tensor square = p * p;
  torch::jit::Stack again = {p.detach(), at::ones({8}), 0.5};
  run_plan(*plan, again, AutogradUse::kPerStep);
  EXPECT_EQ(kernels.counts().runs, 1u);
  EXPECT_THROW(square.sum().backward(), c10::Error);
}

TEST(InPlaceGroups, MindInferenceMode) {
  TwoPlans plans(kUpdate);
  const auto made = [] { return Values{at::ones({8}), at::ones({8}), 0.5}; };
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(plans.agree(made, "inside"));
  }
  const auto outside = [] {
    const c10::InferenceMode inference;
    return Values{at::ones({8}), at::ones({8}), 0.5};
  };
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(plans.agree(outside, "an inference tensor outside"));  // LibTorch raises
  EXPECT_TRUE(plans.agree(made, "a normal tensor outside"));
  const at::Tensor normal = at::ones({8});
  const auto mixed = [&] { return Values{normal.clone(), at::ones({8}), 0.5}; };
  const c10::InferenceMode inference;
  EXPECT_TRUE(plans.agree(mixed, "inside again"));
}

TEST(InPlaceGroups, CopyMemoryThatIsSharedUntilItIsWritten) {
  const at::NoGradGuard no_grad;
  TwoPlans plans(kUpdate);
  for (int call = 0; call < 3; ++call) {
    std::vector<at::Tensor> kept;
    const auto lazy = [&] {
      kept.push_back(at::ones({8}));
      return Values{at::_lazy_clone(kept.back()), at::ones({8}), 0.5};
    };
    EXPECT_FALSE(plans.agree(lazy, "a lazy copy"));
    for (const at::Tensor& tensor : kept) {
      EXPECT_TRUE(at::equal(tensor, at::ones({8})));
    }
  }
}

}  // namespace
}  // namespace sconce::testing
