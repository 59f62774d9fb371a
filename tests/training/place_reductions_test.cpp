// Reductions begin once their last gradient is known, in the order of the buckets.
#include "training/step/place_reductions.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

namespace sconce {
namespace {

constexpr const char* kInputs = "graph(%x : Tensor, %late : Tensor, %early : Tensor, %of_g : Tensor, %of_h : Tensor):\n";

// The gradients %g and %h are the outputs 1 and 2; each has a bucket of its own.
StepReductions two_buckets() {
  StepReductions reductions;
  reductions.group = "ranks";
  reductions.buckets.push_back({.tensor = 1, .members = {{.gradient = 1, .view = 3}}, .bytes = 16});
  reductions.buckets.push_back({.tensor = 2, .members = {{.gradient = 2, .view = 4}}, .bytes = 16});
  return reductions;
}

// Returns the text with the values numbered as they come.
std::string numbered(const std::string& text) {
  std::map<std::string, size_t> numbers;
  const std::regex name("%[A-Za-z0-9_.]+");
  std::string result;
  size_t end = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), name); match != std::sregex_iterator(); ++match) {
    result += text.substr(end, static_cast<size_t>(match->position()) - end) + "%" +
              std::to_string(numbers.emplace(match->str(), numbers.size()).first->second);
    end = static_cast<size_t>(match->position() + match->length());
  }
  return result + text.substr(end);
}

void expect_placed(const std::string& nodes, const std::string& expected, const StepReductions& reductions) {
  const auto graph = parse(kInputs + nodes);
  place_reductions(*graph, reductions);
  verify(*graph, "place_reductions");
  EXPECT_EQ(numbered(print(*graph)), numbered(print(*parse(kInputs + expected))));
}

TEST(PlaceReductions, BeginAfterTheirGradientsAndEndLast) {
  expect_placed(R"(
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::mm(%g, %x)
  %l : Tensor = aten::tanh(%h)
  return (%l, %g, %h)
)",
                R"(
  %no : bool = prim::Constant[value=0]()
  %sum : str = prim::Constant[value="sum"]()
  %name : str = prim::Constant[value="ranks"]()
  %g : Tensor = aten::mm(%x, %x)
  %c : Tensor = aten::copy_[home=1](%of_g, %g, %no)
  %r : Tensor = _c10d_functional::all_reduce_(%late, %sum, %name)
  %h : Tensor = aten::mm(%g, %x)
  %d : Tensor = aten::copy_[home=1](%of_h, %h, %no)
  %s : Tensor = _c10d_functional::all_reduce_(%early, %sum, %name)
  %l : Tensor = aten::tanh(%h)
  %t : Tensor = _c10d_functional::wait_tensor(%late)
  %u : Tensor = _c10d_functional::wait_tensor(%early)
  return (%l, %of_g, %of_h)
)",
                two_buckets());
}

TEST(PlaceReductions, KeepTheOrderOfTheBucketsWhereGradientsHaveAnother) {
  expect_placed(R"(
  %h : Tensor = aten::mm(%x, %x)
  %g : Tensor = aten::mm(%h, %x)
  return (%x, %g, %h)
)",
                R"(
  %no : bool = prim::Constant[value=0]()
  %sum : str = prim::Constant[value="sum"]()
  %name : str = prim::Constant[value="ranks"]()
  %h : Tensor = aten::mm(%x, %x)
  %d : Tensor = aten::copy_[home=1](%of_h, %h, %no)
  %g : Tensor = aten::mm(%h, %x)
  %c : Tensor = aten::copy_[home=1](%of_g, %g, %no)
  %r : Tensor = _c10d_functional::all_reduce_(%late, %sum, %name)
  %s : Tensor = _c10d_functional::all_reduce_(%early, %sum, %name)
  %t : Tensor = _c10d_functional::wait_tensor(%late)
  %u : Tensor = _c10d_functional::wait_tensor(%early)
  return (%x, %of_g, %of_h)
)",
                two_buckets());
}

TEST(PlaceReductions, WaitForTheLastGradientOfABucketAndItsLastWrite) {
  StepReductions reductions;
  reductions.group = "ranks";
  reductions.buckets.push_back({.tensor = 1, .members = {{1, 3}, {2, 4}}, .bytes = 32});
  expect_placed(R"(
  %one : int = prim::Constant[value=1]()
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::tanh(%g)
  %w : Tensor = aten::add_(%g, %h, %one)
  %l : Tensor = aten::neg(%x)
  return (%l, %g, %h)
)",
                R"(
  %no : bool = prim::Constant[value=0]()
  %sum : str = prim::Constant[value="sum"]()
  %name : str = prim::Constant[value="ranks"]()
  %one : int = prim::Constant[value=1]()
  %g : Tensor = aten::mm(%x, %x)
  %h : Tensor = aten::tanh(%g)
  %d : Tensor = aten::copy_[home=1](%of_h, %h, %no)
  %w : Tensor = aten::add_(%g, %h, %one)
  %c : Tensor = aten::copy_[home=1](%of_g, %g, %no)
  %r : Tensor = _c10d_functional::all_reduce_(%late, %sum, %name)
  %l : Tensor = aten::neg(%x)
  %t : Tensor = _c10d_functional::wait_tensor(%late)
  return (%l, %of_g, %of_h)
)",
                reductions);
}

}  // namespace
}  // namespace sconce
