// Prepared steps: the same results as the ordinary steps from the first run on, on operands that change from run to run.
#include "tests/support/both_plans.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using testing::Both;

const char* const kChain = R"(graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add(%x, %y, %one)
  %b : Tensor = aten::mul(%a, %x)
  %c : Tensor = aten::tanh(%b)
  %d : Tensor = aten::sub(%c, %y, %one)
  return (%d)
)";

TEST(PreparedSteps, AgreeOverSizesStridesAndDtypesThatChange) {
  const at::NoGradGuard no_grad;
  Both both(kChain);
  EXPECT_THAT(both.plan().text(), HasSubstr("prepared aten::tanh"));
  for (int round = 0; round < 3; ++round) {
    for (const int64_t size : {1, 3, 8, 40, 3, 1}) {
      both.expect_equal({at::randn({size, 4}), at::randn({size, 4})});
      both.expect_equal({at::randn({size, 4}), at::randn({4})});
      both.expect_equal({at::randn({4, size}).t(), at::randn({size, 4})});
      both.expect_equal({at::randn({size, 8}).slice(1, 0, 8, 2), at::randn({size, 4}, at::kDouble)});
      both.expect_equal({at::randn({size, 4}, at::kBFloat16), at::randn({size, 4}, at::kBFloat16)});
      both.expect_equal({at::randn({2, 3, size, 4}).contiguous(at::MemoryFormat::ChannelsLast), at::randn({size, 4})});
      both.expect_equal({at::randn({0, 4}), at::randn({0, 4})});
      both.expect_equal({at::randn({}), at::randn({size})});
      both.expect_equal({at::randn({size}, at::kComplexFloat), at::randn({size}, at::kComplexFloat)});
    }
  }
}

TEST(PreparedSteps, RaiseTheOperatorsErrorsAndRunAgain) {
  const at::NoGradGuard no_grad;
  Both both(kChain);
  both.expect_equal({at::randn({2, 4}), at::randn({2, 4})});
  EXPECT_THROW(both.run({at::randn({2, 4}), at::randn({3, 4})}), c10::Error);
  both.expect_equal({at::randn({2, 4}), at::randn({2, 4})});
  both.expect_equal({at::randn({5, 4}), at::randn({5, 4})});
}

// Idle dropout hands on its operand, active dropout makes a tensor of its own: here of other sizes in the same run.
TEST(PreparedSteps, AgreeWhenAViewBecomesATensorOfItsOwn) {
  Both both(R"(graph(%x : Tensor, %train : bool):
  %p : float = prim::Constant[value=0.]()
  %one : int = prim::Constant[value=1]()
  %d : Tensor = aten::dropout(%x, %p, %train)
  %y : Tensor = aten::add(%d, %one, %one)
  return (%y))");
  for (const bool trains : {false, true, false}) {
    for (const int64_t rows : {2, 5}) {
      for (int run = 0; run < 2; ++run) {
        both.expect_equal({at::rand({trains ? rows + 1 : rows, 3}), trains});
      }
    }
  }
}

TEST(PreparedSteps, LeaveSparseOperandsToTheOperator) {
  const at::NoGradGuard no_grad;
  Both both(R"(graph(%x : Tensor, %y : Tensor):
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::neg(%a)
  %c : Tensor = aten::to_dense(%b, %none, %none)
  return (%c)
)");
  for (int run = 0; run < 12; ++run) {
    both.expect_equal({at::randn({2, 4}).to_sparse(), at::randn({2, 4}).to_sparse()});
  }
}

TEST(PreparedSteps, HandOutTensorsThatLaterRunsLeaveAlone) {
  const at::NoGradGuard no_grad;
  // %b is an input of the result's list, %a is local.
  Both both(R"(graph(%x : Tensor):
  %two : float = prim::Constant[value=2.]()
  %zero : int = prim::Constant[value=0]()
  %a : Tensor = aten::mul(%x, %two)
  %b : Tensor = aten::exp(%a)
  %row : Tensor = aten::select(%b, %zero, %zero)
  %list : Tensor[] = prim::ListConstruct(%b, %row)
  return (%list)
)");
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> copies;
  for (int run = 0; run < 5; ++run) {
    const auto list = both.run({at::randn({2, 3})}).at(0).toTensorList();
    const at::Tensor first = list.get(0);
    EXPECT_TRUE(at::Tensor(list.get(1)).is_alias_of(first));
    results.push_back(first);
    copies.push_back(first.clone());
  }
  for (size_t run = 0; run < results.size(); ++run) {
    EXPECT_TRUE(at::equal(results[run], copies[run])) << "run " << run;
  }
}

TEST(PreparedSteps, SeeWritesThroughEveryAlias) {
  const at::NoGradGuard no_grad;
  Both both(R"(graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::neg(%x)
  %row : Tensor = aten::select(%a, %zero, %one)
  %before : Tensor = aten::exp(%row)
  %written : Tensor = aten::add_(%a, %one, %one)
  %after : Tensor = aten::exp(%row)
  %sum : Tensor = aten::add(%before, %after, %one)
  %whole : Tensor = aten::mul(%written, %sum)
  return (%whole)
)");
  for (int run = 0; run < 4; ++run) {
    both.expect_equal({at::randn({3, 4})});
  }
}

TEST(PreparedSteps, KeepEachTripsTensorOfALoop) {
  const at::NoGradGuard no_grad;
  // The list holds the tensors of all trips, and the carried value reads that of the trip before.
  Both both(R"(graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %list : Tensor[] = prim::ListConstruct()
  %last : Tensor = prim::Loop(%n, %true, %x)
    block0(%i : int, %h : Tensor):
      %a : Tensor = aten::mul(%h, %x)
      %b : Tensor = aten::tanh(%a)
      %next : Tensor = aten::add(%b, %h, %one)
      %same : Tensor[] = aten::append(%list, %b)
      -> (%true, %next)
  return (%last, %list)
)");
  for (const int64_t trips : {0, 1, 3, 7, 3}) {
    for (int run = 0; run < 3; ++run) {
      both.expect_equal({at::randn({2, 3}), trips});
    }
  }
}

TEST(PreparedSteps, ReadTheIndexOfSelectInEachTrip) {
  const at::NoGradGuard no_grad;
  Both both(R"(graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %first : Tensor = aten::select(%x, %zero, %zero)
  %start : Tensor = aten::neg(%first)
  %last : Tensor = prim::Loop(%n, %true, %start)
    block0(%i : int, %h : Tensor):
      %row : Tensor = aten::select(%x, %zero, %i)
      %next : Tensor = aten::add(%row, %h, %one)
      -> (%true, %next)
  return (%last)
)");
  for (int run = 0; run < 3; ++run) {
    both.expect_equal({at::randn({5, 3}), 5});
  }
  EXPECT_THROW(both.run({at::randn({5, 3}), 6}), c10::Error);
  both.expect_equal({at::randn({5, 3}), 4});
}

TEST(PreparedSteps, JoinListsMadeForThem) {
  const at::NoGradGuard no_grad;
  Both both(R"(graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::neg(%x)
  %list : Tensor[] = prim::ListConstruct(%a, %y, %a)
  %joined : Tensor = aten::cat(%list, %one)
  %pair : Tensor[] = prim::ListConstruct(%a, %x)
  %stacked : Tensor = aten::stack(%pair, %one)
  %r : Tensor = aten::exp(%joined)
  return (%r, %stacked)
)");
  EXPECT_THAT(both.plan().text(), HasSubstr("prepared aten::cat"));
  EXPECT_THAT(both.plan().text(), Not(HasSubstr("ListConstruct")));
  for (const int64_t size : {2, 5, 2}) {
    for (int run = 0; run < 3; ++run) {
      both.expect_equal({at::randn({3, size}), at::randn({3, size})});
    }
    both.expect_equal({at::randn({3, size}), at::randn({3, size}, at::kDouble)});
  }
}

TEST(PreparedSteps, RepeatTensorsOfAnyStrides) {
  const at::NoGradGuard no_grad;
  Both both(R"(graph(%x : Tensor, %n : int):
  %two : int = prim::Constant[value=2]()
  %list : int[] = prim::ListConstruct(%two, %n, %two)
  %y : Tensor = aten::repeat(%x, %list)
  %r : Tensor = aten::neg(%y)
  return (%y, %r)
)");
  EXPECT_THAT(both.plan().text(), HasSubstr("prepared aten::repeat"));
  for (const int64_t size : {3, 0, 5, 3}) {
    for (const int64_t times : {1, 3, 0, 3, 3}) {
      both.expect_equal({at::randn({size, 4}), times});
      both.expect_equal({at::randn({4, size}).t(), times});
      both.expect_equal({at::randn({2, size, 4}).flip(0).slice(2, 0, 4, 2), times});
      both.expect_equal({at::randn({1}, at::kDouble).expand({size}), times});
      both.expect_equal({at::randint(9, {}, at::kLong), times});
      both.expect_equal({at::randn({size}, at::kComplexFloat), times});
    }
  }
  EXPECT_THROW(both.run({at::randn({2, 4}), -1}), c10::Error);
  EXPECT_THROW(both.run({at::randn({2, 2, 2, 2}), 1}), c10::Error);
  both.expect_equal({at::randn({2, 4}), 2});
}

TEST(PreparedSteps, AverageAllPixels) {
  const at::NoGradGuard no_grad;
  const auto text = [](const std::string& size) {
    return "graph(%x : Tensor):\n  %size : int[] = prim::Constant[value=[" + size +
           "]]()\n  %y : Tensor = aten::adaptive_avg_pool2d(%x, %size)\n  return (%y)\n";
  };
  const auto last = [](const at::Tensor& images) { return images.contiguous(at::MemoryFormat::ChannelsLast); };
  for (const std::string size : {"1, 1", "2, 1"}) {
    Both both(text(size), /*is_exact=*/false);
    for (const at::Tensor& images :
         {at::randn({2, 40, 7, 9}), last(at::randn({2, 40, 7, 9})), last(at::randn({3, 5, 7, 9})), at::randn({2, 40, 1, 1}),
          last(at::randn({2, 40, 1, 1})), at::randn({1, 1, 8, 8}), at::randn({2, 17, 12, 6}).transpose(2, 3),
          at::randn({2, 9, 7, 40}).permute({0, 3, 1, 2}), at::randn({40, 7, 9}), at::randn({2, 40, 7, 9}, at::kDouble),
          at::randn({0, 40, 7, 9})}) {
      for (int run = 0; run < 2; ++run) {
        both.expect_equal({images}, /*tolerance=*/1e-5);
        EXPECT_EQ(both.run({images})[0].toTensor().strides(), both.run_ordinary({images})[0].toTensor().strides());
      }
    }
    EXPECT_THROW(both.run({at::randn({4})}), c10::Error);
  }
}

TEST(PreparedSteps, RunOrdinarilyWhileOperatorsAreObserved) {
  const at::NoGradGuard no_grad;
  Both both(kChain);
  both.expect_equal({at::randn({2, 4}), at::randn({2, 4})});
  static int seen;
  seen = 0;
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
    seen += std::string(function.name()) == "aten::tanh" ? 1 : 0;
    return std::unique_ptr<at::ObserverContext>();
  }));
  both.run({at::randn({2, 4}), at::randn({2, 4})});
  at::removeCallback(handle);
  EXPECT_EQ(seen, 1);
  both.expect_equal({at::randn({2, 4}), at::randn({2, 4})});
}

TEST(PreparedSteps, GiveInferenceTensorsInInferenceModeAlone) {
  Both both(kChain);
  const at::Tensor x = at::randn({2, 4});
  for (int run = 0; run < 3; ++run) {
    {
      const c10::InferenceMode inference;
      EXPECT_TRUE(both.run({x, x}).at(0).toTensor().is_inference());
    }
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(both.run({x, x}).at(0).toTensor().is_inference());
  }
}

TEST(PreparedSteps, AllocateNothingInTheArenaAfterTwoRuns) {
  const at::NoGradGuard no_grad;
  Both both(kChain);
  for (int run = 0; run < 2; ++run) {
    both.run({at::randn({2, 4}), at::randn({2, 4})});
  }
  const ArenaLayout* const layout = both.plan().memory().layout();
  ASSERT_NE(layout, nullptr);
  // Three intermediate tensors of 32 bytes; two are live at a time.
  EXPECT_EQ(layout->bytes, 128U);
  both.run({at::randn({2, 4}), at::randn({2, 4})});
  EXPECT_EQ(both.plan().memory().layout(), layout);
}

TEST(PreparedSteps, RunInManyThreads) {
  Both both(kChain);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&both, thread] {
      const at::NoGradGuard no_grad;
      for (int run = 0; run < 200; ++run) {
        const int64_t size = 1 + (run * 7 + thread) % 9;
        both.expect_equal({at::randn({size, 4}), at::randn({size, 4})});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The view keeps the memory of `c` alive, in the list and after it.
TEST(PreparedSteps, AViewInAListKeepsItsMemory) {
  Both both(R"(graph(%x : Tensor, %i : int):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %c : Tensor = aten::cumsum(%x, %zero, %none)
  %t : Tensor = aten::t(%c)
  %list : Tensor[] = prim::ListConstruct(%t, %x)
  %n : int = aten::len(%list)
  %g : Tensor = aten::__getitem__(%list, %i)
  %d : Tensor = aten::cumsum(%x, %one, %none)
  %e : Tensor = aten::cumsum(%d, %one, %none)
  %r : Tensor = aten::mul(%g, %g)
  return (%r, %e, %n)
)");
  const at::NoGradGuard no_grad;
  for (int run = 0; run < 3; ++run) {
    both.expect_equal({at::rand({6, 6}), run % 2});
  }
}

// In each run the views are prepared for other sizes, until their steps give up in the midst of a loop: after a trip that
// prepared them for the sizes of the trips to come.
TEST(PreparedSteps, ViewsThatGiveUpInALoopTakeTheOrdinaryResults) {
  Both both(R"(graph(%x : Tensor, %trips : int):
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %none : NoneType = prim::Constant()
  %last : Tensor = prim::Loop(%trips, %true, %x)
    block0(%i : int, %h : Tensor):
      %g : Tensor = aten::mul(%h, %h)
      %parts : Tensor[] = aten::chunk(%g, %two, %one)
      %a : Tensor, %b : Tensor = prim::ListUnpack(%parts)
      %c : Tensor = aten::sub(%a, %b, %one)
      %d : Tensor = aten::cumsum(%b, %one, %none)
      %s : Tensor = aten::add(%c, %d, %one)
      %l : Tensor[] = prim::ListConstruct(%s, %a)
      %next : Tensor = aten::cat(%l, %one)
      -> (%true, %next)
  return (%last)
)");
  const at::NoGradGuard no_grad;
  for (int64_t rows = 1; rows < 20; ++rows) {
    both.expect_equal({at::rand({rows, 6}), 4});
  }
}

// The bounds of the slice change in each trip, so that its step gives up in the midst of the loop. In later calls the slot
// has a view of what is sliced.
TEST(PreparedSteps, SlicesThatGiveUpInALoopLeaveTheirBaseAlone) {
  Both both(R"(graph(%x : Tensor):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %e : Tensor = aten::mul(%x, %x)
  %trips : int = aten::size(%e, %zero)
  %last : Tensor = prim::Loop(%trips, %true, %x)
    block0(%t : int, %sum : Tensor):
      %end : int = aten::add(%t, %one)
      %row : Tensor = aten::slice(%e, %zero, %t, %end, %one)
      %next : Tensor = aten::add(%sum, %row, %one)
      -> (%true, %next)
  return (%last)
)");
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 6; ++call) {
    both.expect_equal({at::rand({24, 16})});
  }
}

// LibTorch finds out by storages that operands overlap.
TEST(PreparedStep, AViewOfWhatIsWrittenIsRejected) {
  const c10::NoGradGuard no_grad;
  for (const char* nodes : {"  %v : Tensor = aten::narrow(%x, %zero, %one, %one)\n"
                            "  %w : Tensor = aten::add_(%x, %v, %one)\n",
                            "  %v : Tensor = aten::narrow(%x, %zero, %one, %two)\n"
                            "  %w : Tensor = aten::narrow(%x, %zero, %zero, %two)\n"
                            "  %a : Tensor = aten::mul_(%v, %w)\n"}) {
    Both both(std::string("graph(%x : Tensor):\n  %zero : int = prim::Constant[value=0]()\n"
                          "  %one : int = prim::Constant[value=1]()\n  %two : int = prim::Constant[value=2]()\n") +
              nodes + "  %r : Tensor = aten::neg(%x)\n  return (%r)\n");
    for (int call = 0; call < 3; ++call) {
      EXPECT_THROW(both.run_ordinary({at::ones({3, 4})}), c10::Error);
      EXPECT_THROW(both.run({at::ones({3, 4})}), c10::Error) << nodes;
    }
  }
}

}  // namespace
}  // namespace sconce
