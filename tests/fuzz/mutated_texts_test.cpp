// IR texts with mistakes: the parser gives a graph that prints and parses to itself, or an error with line and column, and
// never crashes or hangs. SCONCE_MUTATIONS: how many per text (400).
#include "tests/fuzz/targets.h"

#include "tests/support/damage.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"

#include <gtest/gtest.h>

#include <iostream>

namespace sconce::testing {
namespace {

// What the generator of graphs does not write: classes, attributes of every form, symbolic dims, constants of every type.
const char* const kForms =
    "graph(%self : __torch__.M,\n"
    "      %x.1 : Float(2, *, SS(-1), strides=[6, 2, 1], requires_grad=0, device=cpu),\n"
    "      %d : Dict(str, (Tensor, int[])?)):\n"
    "  %none : NoneType = prim::Constant()\n"
    "  %f : float = prim::Constant[value=-1.5e-07]()\n"
    "  %c : complex = prim::Constant[value=1.+2.j]()\n"
    "  %s : str = prim::Constant[value=\"a\\n\\\"b\\\"\"]() # model.py:3:7\n"
    "  %l : int[] = prim::Constant[value=[1, -2, 3]]()\n"
    "  %dev : Device = prim::Constant[value=\"cuda:1\"]()\n"
    "  %w : Tensor = prim::GetAttr[name=\"weight\"](%self)\n"
    "  %is : bool = prim::isinstance[types=[Tensor, int[], (str, float)?]](%x.1)\n"
    "  %y : Tensor = prim::If(%is)\n"
    "    block0():\n"
    "      %z : Tensor = aten::linear(%x.1, %w, %none)\n"
    "      -> (%z)\n"
    "    block1():\n"
    "      -> (%w)\n"
    "   = prim::SetAttr[name=\"weight\"](%self, %y)\n"
    "  return (%y, %f)\n";

std::vector<std::string> seeds() {
  std::vector<std::string> texts = {kForms};
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    texts.push_back(generate_graph(seed).text);
  }
  return texts;
}

TEST(MutatedTexts, TheSeedsAreRead) {
  for (const std::string& text : seeds()) {
    EXPECT_TRUE(fuzz_ir_text(text)) << text;
  }
}

TEST(MutatedTexts, GiveAGraphOrAParseError) {
  const uint64_t count = environment_number("SCONCE_MUTATIONS", 400);
  size_t read = 0;
  size_t tried = 0;
  for (const std::string& text : seeds()) {
    for (uint64_t seed = 0; seed < count; ++seed) {
      Random random(seed);
      std::string mutated = text;
      damage(mutated, 0, mutated.size(), random);
      SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" + mutated);
      try {
        read += fuzz_ir_text(mutated) ? 1 : 0;
      } catch (const std::exception& failure) {
        ADD_FAILURE() << failure.what();
      }
      ++tried;
    }
  }
  std::cout << tried << " texts, " << read << " of them are read\n";
  EXPECT_LT(read, tried);
}

}  // namespace
}  // namespace sconce::testing
