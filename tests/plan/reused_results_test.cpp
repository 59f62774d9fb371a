// Small results that a frame uses again: only what nothing else can observe.
#include "plan/prepared/reused_results.h"

#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"
#include "plan/tensor_slot.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace sconce {
namespace {

at::Tensor form(std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return make_shell(sizes, c10::contiguous_strides(sizes), dtype);
}

TEST(ReusedResults, ADroppedTensorIsTakenAgain) {
  ReusedResults results;
  const at::Tensor shell = form({2, 3});
  const void* const first = results.take(shell).unsafeGetTensorImpl();
  EXPECT_EQ(results.take(shell).unsafeGetTensorImpl(), first);
  std::thread([&] { results.take(shell).fill_(0); }).join();
}

TEST(ReusedResults, OneThatIsHeldInAnyWayIsNot) {
  const at::Tensor shell = form({2, 3});
  const std::vector<std::pair<const char*, std::function<c10::IValue(const at::Tensor&)>>> holders = {
      {"the tensor", [](const at::Tensor& made) { return made; }},
      {"a view", [](const at::Tensor& made) { return made.t(); }},
      {"a detached tensor", [](const at::Tensor& made) { return made.detach(); }},
      {"the storage", [](const at::Tensor& made) { return made.storage(); }},
      {"a list", [](const at::Tensor& made) { return c10::List<at::Tensor>({made}); }},
  };
  for (const auto& [name, hold] : holders) {
    ReusedResults results;
    const c10::IValue held = hold(results.take(shell));
    at::Tensor next = results.take(shell);
    next.fill_(5);
    if (held.isTensor()) {
      EXPECT_FALSE(held.toTensor().is_alias_of(next)) << name;
    } else if (held.isStorage()) {
      EXPECT_NE(held.toStorage().data(), next.storage().data()) << name;
    } else {
      EXPECT_FALSE(held.toTensorVector().at(0).is_alias_of(next)) << name;
    }
  }
  ReusedResults results;
  at::Tensor made = results.take(shell);
  const c10::weak_intrusive_ptr<c10::TensorImpl> weak(made.getIntrusivePtr());
  made.reset();
  EXPECT_NE(results.take(shell).unsafeGetTensorImpl(), weak.lock().get());
}

// A tensor that is taken is one that was just made, whatever its former holder did.
TEST(ReusedResults, OneThatWasChangedIsNot) {
  const at::Tensor shell = form({2, 3});
  const std::vector<std::pair<const char*, std::function<void(at::Tensor&)>>> changes = {
      {"nothing", [](at::Tensor&) {}},
      {"in place", [](at::Tensor& made) { made.add_(1); }},
      {"requires_grad_", [](at::Tensor& made) { made.requires_grad_(); }},
      {"resize_", [](at::Tensor& made) { made.resize_({3, 7}); }},
      {"resize_ and back", [](at::Tensor& made) { made.resize_({3, 7}).resize_({2, 3}); }},
      {"t_", [](at::Tensor& made) { made.t_(); }},
      {"set_", [](at::Tensor& made) { made.set_(at::ones({2, 3})); }},
      {"set_data", [](at::Tensor& made) { made.set_data(at::ones({2, 3}, at::kLong)); }},
      {"a lazy clone", [](at::Tensor& made) { static_cast<void>(at::_lazy_clone(made)); }},
  };
  for (const auto& [name, change] : changes) {
    ReusedResults results;
    {
      at::Tensor made = results.take(shell);
      change(made);
    }
    for (int i = 0; i < 3; ++i) {
      const at::Tensor next = results.take(shell);
      EXPECT_TRUE(have_same_form(next, shell)) << name;
      EXPECT_FALSE(next.requires_grad()) << name;
      EXPECT_EQ(next.grad_fn(), nullptr) << name;
      EXPECT_EQ(next._version(), 0) << name;
      EXPECT_EQ(next.storage().nbytes(), shell.storage().nbytes()) << name;
      EXPECT_EQ(next.storage().data_ptr().get_deleter(), c10::GetCPUAllocator()->raw_deleter()) << name;
    }
  }
}

TEST(ReusedResults, OneThatBecameAWrappedNumberIsNot) {
  ReusedResults results;
  results.take(form({})).unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_FALSE(results.take(form({})).unsafeGetTensorImpl()->is_wrapped_number());
}

TEST(ReusedResults, InferenceTensorsAndOthersAreNotMixed) {
  ReusedResults results;
  const at::Tensor shell = form({4});
  for (const bool inference : {false, true, true, false, false, true}) {
    const c10::InferenceMode mode(inference);
    EXPECT_EQ(results.take(shell).is_inference(), inference);
  }
}

TEST(ReusedResults, FormsMayChange) {
  ReusedResults results;
  std::vector<at::Tensor> held;
  for (int64_t i = 0; i < 300; ++i) {
    const at::Tensor shell = i % 3 == 0 ? form({1 + i % 7, 5}) : form({1 + i % 5}, at::kLong);
    at::Tensor made = results.take(shell);
    ASSERT_TRUE(have_same_form(made, shell));
    made.fill_(i);
    if (i % 4 == 0) {
      held.push_back(made);
      EXPECT_TRUE(held[held.size() / 2].eq(static_cast<int64_t>(held.size() / 2) * 4).all().item<bool>());
    }
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(held[i].eq(static_cast<int64_t>(i) * 4).all().item<bool>());
  }
}

TEST(ReusedResults, LargeTensorsAreNotKept) {
  ReusedResults results;
  EXPECT_EQ(results.take(form({100, 100})).use_count(), 1);
  EXPECT_EQ(results.take(form({100})).use_count(), 2);
}

// Results of a loop that are kept in a list, and one that is carried on: each trip has memory of its own.
const char* const kLoop = R"(graph(%x : Tensor, %trips : int):
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %kept : Tensor[] = prim::ListConstruct()
  %last : Tensor = prim::Loop(%trips, %true, %x)
    block0(%i : int, %h : Tensor):
      %s : Tensor = aten::sigmoid(%h)
      %next : Tensor = aten::add(%s, %x, %one)
      %e : Tensor = aten::exp(%next)
      %list : Tensor[] = aten::append(%kept, %e)
      -> (%true, %next)
  %all : Tensor = aten::stack(%kept, %zero)
  return (%all, %last, %kept)
)";

TEST(ReusedResults, ResultsOfTripsAndRunsKeepTheirValues) {
  const auto reusing = std::move(
      *lower(testing::graph_of(kLoop), nullptr, nullptr, LoweringOptions{.is_prepared = true, .fresh_outputs = 0}));
  const auto ordinary = std::move(*lower(testing::graph_of(kLoop)));
  const at::NoGradGuard no_grad;
  std::vector<torch::jit::Stack> kept;
  std::vector<torch::jit::Stack> expected;
  for (const int64_t trips : {3, 5, 70, 2, 0, 9, 5, 5}) {
    torch::jit::Stack stack = {at::rand({2, 4}), std::max<int64_t>(trips, 1)};
    torch::jit::Stack same = stack;
    run_plan(*reusing, stack, AutogradUse::kNone);
    run_plan(*ordinary, same, AutogradUse::kNone);
    if (trips != 9) {  // the caller drops some results
      kept.push_back(std::move(stack));
      expected.push_back(std::move(same));
    }
  }
  for (size_t run = 0; run < kept.size(); ++run) {
    for (size_t i = 0; i < kept[run].size(); ++i) {
      EXPECT_TRUE(testing::agree(kept[run][i], expected[run][i])) << "run " << run << ", output " << i;
    }
  }
}

}  // namespace
}  // namespace sconce
