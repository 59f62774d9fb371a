// What a failed allocation leaves behind.
#include "executor/argument_spec/argument_spec.h"

#include "tests/executor/failing_memory.h"
#include "tests/support/graphs.h"

#include "load/function_table.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>

#include <new>

namespace sconce {
namespace {

TEST(AttributeMemo, OneThatCouldNotBeKeptIsNotRead) {
  const auto module = testing::module_of("def forward(self, x):\n    return x + self.w\n", {{"w", at::ones({2, 3})}});
  FunctionTable functions;
  const Graph& graph = **functions.graph_of(module.get_method("forward").function());
  const std::vector<c10::IValue> arguments = {module._ivalue(), at::ones({2, 3})};
  const auto words_of = [&](const ArgumentSpecCreator& creator) {
    ArgumentSpec spec;
    creator.create(arguments, spec);
    return std::vector<uint64_t>(spec.words().begin(), spec.words().end());
  };
  const std::vector<uint64_t> expected = words_of(ArgumentSpecCreator(graph));
  bool failed = true;
  for (size_t number = 1; failed; ++number) {
    const ArgumentSpecCreator creator(graph);
    {
      const testing::FailingMemory memory(number);
      try {
        words_of(creator);
      } catch (const std::bad_alloc&) {
      }
      failed = memory.failed();
    }
    EXPECT_EQ(words_of(creator), expected) << "after allocation " << number << " failed";
    EXPECT_EQ(words_of(creator), expected) << "from memory, after allocation " << number << " failed";
  }
}

}  // namespace
}  // namespace sconce
