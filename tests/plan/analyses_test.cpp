// Liveness, escaping values, the pool of frames.
#include "tests/support/graphs.h"

#include "analysis/escapes.h"
#include "plan/liveness.h"
#include "plan/object_pool.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

namespace sconce {
namespace {

using testing::find_node;
using testing::find_value;
using testing::graph_of;
using ::testing::UnorderedElementsAre;

// ---- liveness -------------------------------------------------------------------------------------------------------

std::vector<std::string> names(const std::vector<const Value*>& values) {
  std::vector<std::string> out;
  for (const Value* value : values) {
    out.push_back(value->name());
  }
  return out;
}

TEST(Liveness, OfSeveralEqualInputsOnlyTheLastIsTheLastUse) {
  const auto graph = graph_of("graph(%a : Tensor):\n  %l : Tensor[] = prim::ListConstruct(%a, %a, %a)\n  return (%l)\n");
  const Liveness liveness(*graph);
  const Node& node = *find_node(*graph, "prim::ListConstruct");
  EXPECT_FALSE(liveness.is_last_use(node, 0));
  EXPECT_FALSE(liveness.is_last_use(node, 1));
  EXPECT_TRUE(liveness.is_last_use(node, 2));
  EXPECT_TRUE(liveness.is_last_use(*graph->body().return_node(), 0));
}

TEST(Liveness, AValueReturnedTwiceDiesAtTheSecond) {
  const auto graph = graph_of("graph(%a : Tensor):\n  return (%a, %a)\n");
  const Liveness liveness(*graph);
  EXPECT_FALSE(liveness.is_last_use(*graph->body().return_node(), 0));
  EXPECT_TRUE(liveness.is_last_use(*graph->body().return_node(), 1));
}

TEST(Liveness, UnusedOutputsDieBehindTheirNode) {
  const auto graph = graph_of("graph(%l : Tensor[]):\n  %a : Tensor, %b : Tensor = prim::ListUnpack(%l)\n  return (%b)\n");
  EXPECT_THAT(names(Liveness(*graph).dead_after(*find_node(*graph, "prim::ListUnpack"))), UnorderedElementsAre("a"));
}

TEST(Liveness, AValueOfOneBranchDiesOnEntryOfTheOther) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %b : Tensor, %flag : bool):\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::neg(%a)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      -> (%b)\n"
      "  return (%r)\n");
  const Liveness liveness(*graph);
  const Node& branch = *find_node(*graph, "prim::If");
  EXPECT_THAT(names(liveness.dead_on_entry(*branch.block(0))), UnorderedElementsAre("b"));
  EXPECT_THAT(names(liveness.dead_on_entry(*branch.block(1))), UnorderedElementsAre("a"));
  EXPECT_TRUE(liveness.is_last_use(*find_node(*graph, "aten::neg"), 0));
  EXPECT_TRUE(liveness.is_last_use(*branch.block(1)->return_node(), 0));
}

TEST(Liveness, AValueUsedBehindABranchDoesNotDieInIt) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %flag : bool):\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::neg(%a)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      -> (%a)\n"
      "  %s : Tensor = aten::mul(%r, %a)\n"
      "  return (%s)\n");
  const Liveness liveness(*graph);
  const Node& branch = *find_node(*graph, "prim::If");
  EXPECT_FALSE(liveness.is_last_use(*find_node(*graph, "aten::neg"), 0));
  EXPECT_FALSE(liveness.is_last_use(*branch.block(1)->return_node(), 0));
  EXPECT_TRUE(liveness.is_last_use(*find_node(*graph, "aten::mul"), 1));
}

TEST(Liveness, AValueFromOutsideDiesBehindTheLoopThatUsesItAndNeverInside) {
  const auto graph = graph_of(
      "graph(%a : Tensor, %k : Tensor, %n : int, %yes : bool):\n"
      "  %r : Tensor = prim::Loop(%n, %yes, %a)\n"
      "    block0(%i : int, %v : Tensor):\n"
      "      %w : Tensor = aten::mul(%v, %k)\n"
      "      -> (%yes, %w)\n"
      "  return (%r)\n");
  const Liveness liveness(*graph);
  const Node& mul = *find_node(*graph, "aten::mul");
  EXPECT_TRUE(liveness.is_last_use(mul, 0)) << "the carried value is the iteration's own";
  EXPECT_FALSE(liveness.is_last_use(mul, 1)) << "the next iteration uses it";
  EXPECT_THAT(names(liveness.dead_after(*find_node(*graph, "prim::Loop"))), UnorderedElementsAre("k", "yes"));
  EXPECT_THAT(names(liveness.dead_on_entry(*find_node(*graph, "prim::Loop")->block(0))), UnorderedElementsAre("i"));
}

// ---- escapes (rule R2) ----------------------------------------------------------------------------------------------

std::set<std::string> escaping(const std::string& text, bool autograd = false) {
  const auto graph = graph_of(text);
  const AliasSets aliases(*graph);
  std::set<std::string> out;
  for (const Value* value : find_escaping_values(*graph, aliases, autograd)) {
    out.insert(value->name());
  }
  return out;
}

TEST(Escapes, AreOutputsAndWhatTheyView) {
  const auto out = escaping(
      "graph(%in : Tensor, %n : int):\n"
      "  %free : Tensor = aten::relu(%in)\n"
      "  %base : Tensor = aten::neg(%free)\n"
      "  %view : Tensor = aten::select(%base, %n, %n)\n"
      "  return (%view)\n");
  EXPECT_TRUE(out.contains("view"));
  EXPECT_TRUE(out.contains("base"));
  EXPECT_TRUE(out.contains("in"));
  EXPECT_FALSE(out.contains("free"));
  EXPECT_FALSE(out.contains("n"));
}

TEST(Escapes, AreWithAutogradAlsoOtherNamesOfWhatItMaySave) {
  const std::string text =
      "graph(%in : Tensor, %flag : bool):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      -> (%a)\n"
      "  %list : Tensor[] = prim::ListConstruct(%a)\n"
      "  %u : Tensor = prim::ListUnpack(%list)\n"
      "  return (%in)\n";
  EXPECT_EQ(escaping(text), std::set<std::string>({"in"}));
  EXPECT_EQ(escaping(text, /*autograd=*/true), std::set<std::string>({"in", "a", "r", "u"}));
}

TEST(Escapes, AreWhatLiesInReturnedContainersAtAnyDepth) {
  const auto out = escaping(
      "graph(%in : Tensor, %k : str):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  %list : Tensor[] = prim::ListConstruct(%a)\n"
      "  %more : Tensor[] = aten::append(%list, %b)\n"
      "  %t : (Tensor[], str) = prim::TupleConstruct(%list, %k)\n"
      "  %d : Dict(str, (Tensor[], str)) = prim::DictConstruct(%k, %t)\n"
      "  %own : Tensor[] = prim::ListConstruct(%c)\n"
      "  %i : int = prim::Constant[value=0]()\n"
      "  %e : Tensor = aten::__getitem__(%own, %i)\n"
      "  return (%d)\n");
  for (const char* name : {"a", "b", "list", "t", "d"}) {
    EXPECT_TRUE(out.contains(name)) << name;
  }
  EXPECT_FALSE(out.contains("c")) << "its list stays inside";
  EXPECT_FALSE(out.contains("e"));
}

TEST(Escapes, AreWhatIsStoredOutside) {
  const auto out = escaping(
      "graph(%self : __torch__.M, %list : Tensor[], %in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %c : Tensor = aten::relu(%in)\n"
      "  prim::SetAttr[name=\"state\"](%self, %a)\n"
      "  %l : Tensor[] = aten::append(%list, %b)\n"
      "  return ()\n");
  EXPECT_TRUE(out.contains("a"));
  EXPECT_TRUE(out.contains("b"));
  EXPECT_FALSE(out.contains("c"));
}

TEST(Escapes, AreWhatABranchOrLoopHandsToAnOutput) {
  const auto out = escaping(
      "graph(%in : Tensor, %flag : bool, %n : int):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::relu(%in)\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      -> (%a)\n"
      "    block1():\n"
      "      %c : Tensor = aten::neg(%b)\n"
      "      -> (%c)\n"
      "  %l : Tensor = prim::Loop(%n, %flag, %r)\n"
      "    block0(%i : int, %v : Tensor):\n"
      "      %w : Tensor = aten::neg(%v)\n"
      "      -> (%flag, %w)\n"
      "  return (%l)\n");
  for (const char* name : {"a", "c", "r", "l", "v", "w"}) {
    EXPECT_TRUE(out.contains(name)) << name;
  }
  EXPECT_FALSE(out.contains("b"));
}

TEST(Escapes, AreAllOperandsAndResultsWhereAutogradRuns) {
  const std::string text =
      "graph(%in : Tensor):\n"
      "  %a : Tensor = aten::relu(%in)\n"
      "  %b : Tensor = aten::neg(%a)\n"
      "  %s : Tensor = aten::tanh(%b)\n"
      "  return (%s)\n";
  EXPECT_FALSE(escaping(text).contains("a"));
  EXPECT_TRUE(escaping(text, true).contains("a"));
  EXPECT_TRUE(escaping(text, true).contains("b"));
}

// ---- the pool -------------------------------------------------------------------------------------------------------

TEST(ObjectPool, IsEmptyAtFirstAndGivesBackWhatItGot) {
  ObjectPool<int> pool;
  EXPECT_EQ(pool.take(), nullptr);
  auto made = std::make_unique<int>(7);
  const int* address = made.get();
  pool.give_back(std::move(made));
  const auto again = pool.take();
  EXPECT_EQ(again.get(), address);
  EXPECT_EQ(pool.take(), nullptr) << "it was taken";
}

struct Counted {
  static inline std::atomic<int> living{0};
  Counted() { ++living; }
  ~Counted() { --living; }
  std::atomic<int> holders{0};
};

TEST(ObjectPool, DestroysWhatExceedsItsSlotsAndTheRestWithItself) {
  {
    ObjectPool<Counted> pool;
    for (size_t i = 0; i < ObjectPool<Counted>::kSlots + 10; ++i) {
      pool.give_back(std::make_unique<Counted>());
    }
    EXPECT_EQ(Counted::living, static_cast<int>(ObjectPool<Counted>::kSlots));
    for (size_t i = 0; i < ObjectPool<Counted>::kSlots; ++i) {
      EXPECT_NE(pool.take(), nullptr);
    }
    EXPECT_EQ(Counted::living, 0);
    pool.give_back(std::make_unique<Counted>());
  }
  EXPECT_EQ(Counted::living, 0);
}

TEST(ObjectPool, DestroysOnceItIsClosedWhatItHasAndWhatItIsGiven) {
  ObjectPool<Counted> pool;
  auto taken = std::make_unique<Counted>();
  pool.give_back(std::make_unique<Counted>());
  pool.close();
  EXPECT_EQ(Counted::living, 1);
  EXPECT_EQ(pool.take(), nullptr);
  pool.give_back(std::move(taken));
  EXPECT_EQ(Counted::living, 0);
  EXPECT_EQ(pool.take(), nullptr);
}

TEST(ObjectPool, MayBeClosedWhileThreadsUseIt) {
  for (int round = 0; round < 100; ++round) {
    ObjectPool<Counted> pool;
    std::atomic<int> rounds{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i, ++rounds) {
          auto object = pool.take();
          pool.give_back(object ? std::move(object) : std::make_unique<Counted>());
        }
      });
    }
    while (rounds < 100) {
      std::this_thread::yield();
    }
    pool.close();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(Counted::living, 0);
  }
}

TEST(ObjectPool, NeverGivesOneObjectToTwoThreads) {
  {
    ObjectPool<Counted> pool;
    std::atomic<int> shared{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20000; ++i) {
          auto object = pool.take();
          if (!object) {
            object = std::make_unique<Counted>();
          }
          shared += object->holders.fetch_add(1) == 0 ? 0 : 1;
          object->holders.fetch_sub(1);
          pool.give_back(std::move(object));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(shared.load(), 0);
    EXPECT_LE(Counted::living, 8);
  }
  EXPECT_EQ(Counted::living, 0) << "nothing leaked";
}

}  // namespace
}  // namespace sconce
