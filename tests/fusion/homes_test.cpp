// Results that are computed where the graph would copy them (attr::kHome).
#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "fusion/group/form_groups.h"
#include "fusion/group_compilers.h"
#include "ir/schema_match.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// %out is a view of a bucket.
constexpr const char* kCopiedProduct = R"(graph(%x : Tensor, %w : Tensor, %out : Tensor):
  %no : bool = prim::Constant[value=0]()
  %g : Tensor = aten::mm(%x, %w)
  %c : Tensor = aten::copy_[home=1](%out, %g, %no)
  %l : Tensor = aten::neg(%out)
  return (%l)
)";

std::unique_ptr<Plan> plan_of_operators(const std::string& text) {
  return std::move(*lower(testing::graph_of(text), nullptr, nullptr, LoweringOptions{.is_prepared = true}));
}

void run_without_gradients(const Plan& plan, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  torch::jit::Stack stack(tensors.begin(), tensors.end());
  run_plan(plan, stack, AutogradUse::kNone);
}

TEST(Homes, AProductIsComputedInTheBucket) {
  const auto plan = plan_of_operators(kCopiedProduct);
  EXPECT_THAT(plan->text(), HasSubstr(" in %4"));
  const at::Tensor bucket = at::full({40}, 7.0);
  const at::Tensor out = bucket.narrow(0, 8, 24).view({4, 6});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::randn({4, 5});
    const at::Tensor w = at::randn({5, 6});
    run_without_gradients(*plan, {x, w, out});
    EXPECT_TRUE(at::allclose(out, x.mm(w), 1e-5, 1e-6)) << "call " << call;
    EXPECT_TRUE(at::cat({bucket.narrow(0, 0, 8), bucket.narrow(0, 32, 8)}).eq(7).all().item<bool>());
  }
}

TEST(Homes, AResultOfAnotherFormIsCopied) {
  const auto plan = plan_of_operators(kCopiedProduct);
  const at::Tensor x = at::randn({4, 5});
  const at::Tensor w = at::randn({5, 6});
  const std::vector<std::pair<const char*, at::Tensor>> places = {
      {"columns", at::zeros({6, 4}).t()},
      {"every second element", at::zeros({4, 12}).slice(1, 0, 12, 2)},
      {"double", at::zeros({4, 6}, at::kDouble)},
      {"more rows, which the copy fills with the only one", at::zeros({3, 4, 6})},
      {"the form", at::zeros({4, 6})},
  };
  for (int call = 0; call < 2; ++call) {
    for (const auto& [name, out] : places) {
      out.zero_();
      run_without_gradients(*plan, {x, w, out});
      EXPECT_TRUE(at::allclose(out, x.mm(w).to(out.scalar_type()).expand_as(out), 1e-5, 1e-6)) << name;
    }
  }
}

// The copy of such a value comes later than another use, or the value is what two copies read.
TEST(Homes, AValueThatHasAnotherUseHasMemoryOfItsOwn) {
  const auto plan = plan_of_operators(R"(graph(%x : Tensor, %w : Tensor, %out : Tensor, %also : Tensor):
  %no : bool = prim::Constant[value=0]()
  %g : Tensor = aten::mm(%x, %w)
  %c : Tensor = aten::copy_[home=1](%out, %g, %no)
  %d : Tensor = aten::copy_[home=1](%also, %g, %no)
  %v : Tensor = aten::mm(%x, %w)
  %t : Tensor = aten::t(%v)
  %e : Tensor = aten::copy_[home=1](%also, %t, %no)
  return (%out)
)");
  EXPECT_THAT(plan->text(), Not(HasSubstr(" in %")));
}

// As the ending of a step, the copies are placed after the groups are formed.
TEST(Homes, ResultsOfAGroupAreComputedInTheirBuckets) {
  for (const size_t width : testing::kernel_widths()) {
    const std::shared_ptr<Graph> graph = testing::graph_of(
        "graph(%x : Tensor, %y : Tensor, %a : Tensor, %b : Tensor):\n"
        "  %t : Tensor = aten::tanh(%x)\n"
        "  %g : Tensor = aten::mul(%t, %y)\n"
        "  %h : Tensor = aten::sigmoid(%g)\n"
        "  return (%g, %h)\n");
    form_groups(*graph);
    Node* const end = graph->body().return_node();
    Value* const no = graph->insert_constant(false, end);
    for (size_t i = 0; i < 2; ++i) {
      Node* const copy =
          graph->create(c10::Symbol::fromQualString("aten::copy_"), {graph->inputs()[2 + i], graph->outputs()[i], no});
      ASSERT_TRUE(resolve(*copy->insert_before(end)));
      copy->set_attribute(attr::kHome, int64_t{1});
      graph->body().set_return(i, graph->inputs()[2 + i]);
    }
    const auto kernels = make_blocking_kernels(width);
    const auto plan =
        std::move(*lower(graph, nullptr, nullptr, LoweringOptions{.is_prepared = true, .groups = kernels.get()}));
    EXPECT_THAT(plan->text(), HasSubstr("kernel tanh mul sigmoid"));
    EXPECT_THAT(plan->text(), HasSubstr(" in %"));
    const at::Tensor bucket = at::zeros({24});
    const at::Tensor a = bucket.narrow(0, 0, 12).view({3, 4});
    const at::Tensor b = bucket.narrow(0, 12, 12).view({3, 4});
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = at::randn({3, 4});
      const at::Tensor y = at::randn({3, 4});
      run_without_gradients(*plan, {x, y, a, b});
      EXPECT_TRUE(at::allclose(a, x.tanh() * y, 1e-5, 1e-6)) << "call " << call;
      EXPECT_TRUE(at::allclose(b, (x.tanh() * y).sigmoid(), 1e-5, 1e-6)) << "call " << call;
    }
  }
}

}  // namespace
}  // namespace sconce
