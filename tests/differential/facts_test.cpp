// What propagate_facts claims, against what runs of the same graphs see.
#include "tests/differential/composed/program.h"
#include "tests/differential/composed/program_generator.h"
#include "tests/differential/composed/templates.h"
#include "tests/differential/facts_coverage.h"
#include "tests/differential/facts_of_libtorch.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"
#include "tests/support/part.h"
#include "tests/support/spec_facts.h"

#include "executor/compile.h"
#include "ir/facts.h"
#include "ir/kernel_node.h"
#include "ir/text/print.h"
#include "plan/run_plan.h"
#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/values/cases.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

namespace sconce::testing {
namespace {

struct FactsOutcome {
  std::vector<std::string> contradictions;
  Coverage exact;     // sizes are numbers
  Coverage symbolic;  // sizes are symbols, but for those of 1
  std::map<std::string, size_t> unknown;
  size_t calls_with_equal_words = 0;  // in which the facts of another call were checked

  void operator+=(const FactsOutcome& other) {
    calls_with_equal_words += other.calls_with_equal_words;
    contradictions.insert(contradictions.end(), other.contradictions.begin(), other.contradictions.end());
    exact += other.exact;
    symbolic += other.symbolic;
    for (const auto& [op, count] : other.unknown) {
      unknown[op] += count;
    }
  }
};

using Arguments = std::vector<c10::IValue>;

// What a run of the graph sees; null if the graph cannot be run on its own.
std::unique_ptr<Graph> seen_in_run(const std::shared_ptr<const Graph>& graph, const Arguments& arguments) {
  auto compiled = compile_profiled(graph);
  if (!compiled) {
    std::cout << "not run: " << compiled.refusal().reason << "\n";
    return nullptr;
  }
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(argument.isObject() ? argument : argument.deepcopy());
  }
  at::manual_seed(0);
  try {
    run_plan(*compiled->plan, stack, AutogradUse::kAll);
  } catch (const std::exception&) {
    // What has run until then was seen.
  }
  return compiled->profile->annotated_graph();
}

// Facts of the first call, against a run of it. Those from its words alone also hold in other calls with the same words.
FactsOutcome check(const std::shared_ptr<const Graph>& planned, const std::vector<Arguments>& calls) {
  const std::shared_ptr<Graph> graph = planned->clone();
  dissolve_kernel_nodes(*graph);
  FactsOutcome outcome;
  std::array<std::unique_ptr<Graph>, 2> claimed = {graph->clone(), graph->clone()};
  for (const auto& [sizes, at] : {std::pair(Sizes::kNumbers, 0), std::pair(Sizes::kSymbols, 1)}) {
    const InputAssumptions given = facts_of_call(*claimed[at], calls[0], sizes);
    propagate_facts(*claimed[at], given);
    const std::string first = print(*claimed[at]);
    propagate_facts(*claimed[at], given);
    EXPECT_EQ(print(*claimed[at]), first) << "the second time, too, something was found";
  }
  const std::unique_ptr<Graph> seen = seen_in_run(graph, calls[0]);
  if (seen == nullptr) {
    return outcome;
  }
  for (const auto& [graph_with_facts, coverage] :
       {std::pair(claimed[0].get(), &outcome.exact), std::pair(claimed[1].get(), &outcome.symbolic)}) {
    Comparison comparison = compare_facts(*graph_with_facts, *seen, *claimed[0]);
    *coverage = comparison.coverage;
    outcome += {std::move(comparison.contradictions), {}, {}, std::move(comparison.unknown)};
  }
  const std::vector<uint64_t> words = words_of_call(*graph, calls[0]);
  for (size_t i = 1; i < calls.size(); ++i) {
    if (words_of_call(*graph, calls[i]) == words) {
      const std::unique_ptr<Graph> also_seen = seen_in_run(graph, calls[i]);
      outcome += {compare_facts(*claimed[1], *also_seen, *claimed[0]).contradictions, {}, {}, {}};
      ++outcome.calls_with_equal_words;
    }
  }
  return outcome;
}

void print_row(const std::string& name, const FactsOutcome& outcome, const std::optional<FactsOfLibtorch>& libtorch = {}) {
  const auto cell = [](const auto& text) { std::cout << std::setw(9) << text; };
  const auto share = [&](const Coverage& coverage) { cell(percent(coverage.known, coverage.tensors)); };
  const auto share_of_determined = [&](const Coverage& coverage) {
    cell(percent(coverage.determined_known, coverage.determined));
  };
  std::cout << std::left << std::setw(32) << name << std::right;
  cell(outcome.exact.tensors);
  share(outcome.exact);
  share(outcome.symbolic);
  cell(outcome.exact.determined);
  share_of_determined(outcome.exact);
  share_of_determined(outcome.symbolic);
  cell(percent(outcome.exact.strides, outcome.exact.tensors));
  if (libtorch) {
    share(libtorch->profiled);
    share(libtorch->propagated);
  }
  for (const auto& [op, count] : outcome.unknown) {
    std::cout << "  " << op << " " << count;
  }
  std::cout << "\n";
}

// ---- models -----------------------------------------------------------------------------------------------------------

struct ModelOutcome {
  FactsOutcome ours;
  std::optional<FactsOfLibtorch> libtorch;
};

ModelOutcome check_facts_of_model(const std::string& name) {
  const auto cases = std::get<cli::ModelCases>(cli::read_cases(cases_file(name)));
  const Module module = load(model_file(name));
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> arguments;
  for (const c10::IValue& input : cases.inputs[0]) {
    arguments.push_back(input.deepcopy());
  }
  at::manual_seed(cases.seed);
  module.run_method(cases.method, arguments);
  const auto graph = last_executed_graph();
  const auto method = module.script_module().get_method(cases.method);
  const auto& schema = method.function().getSchema().arguments();
  std::vector<Arguments> calls;
  for (const Arguments& inputs : cases.inputs) {
    Arguments all = {module.script_module()._ivalue()};
    all.insert(all.end(), inputs.begin(), inputs.end());
    for (size_t i = all.size(); i < schema.size(); ++i) {
      all.push_back(*schema[i].default_value());
    }
    calls.push_back(std::move(all));
  }
  ModelOutcome outcome;
  outcome.ours = check(graph, calls);
  if (outcome.ours.exact.tensors > 0) {
    outcome.libtorch = facts_of_libtorch(method, calls[0], cases.seed);
  }
  return outcome;
}

// Of the tensors of all models whose sizes do not depend on data.
constexpr size_t kExactPerMille = 990;
constexpr size_t kSymbolicPerMille = 970;

TEST(Facts, HoldInModels) {
  cli::open_ops_library(plugin_file("torchvision_ops"));
  std::vector<std::string> names = model_names();
  const std::vector<std::string> more = model_names("torchvision_ops");
  names.insert(names.end(), more.begin(), more.end());
  // The smallest of them, if not told otherwise.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::file_size(model_file(a)) < std::filesystem::file_size(model_file(b));
  });
  const size_t count = environment_number("SCONCE_FACTS_MODELS", 40);
  const bool is_all = count >= names.size();
  names.resize(std::min(names.size(), count));
  std::cout
      << "of all values that runs made: how many, exact, symbolic; of those whose sizes do not depend on data: the same; "
         "exact with strides; torch::jit after a profiling run, after shape propagation; first unknown operators\n";
  ModelOutcome total;
  total.libtorch.emplace();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    if (std::holds_alternative<cli::OperatorCases>(cli::read_cases(cases_file(name)))) {
      continue;
    }
    const ModelOutcome outcome = check_facts_of_model(name);
    EXPECT_THAT(outcome.ours.contradictions, ::testing::IsEmpty());
    print_row(name, outcome.ours, outcome.libtorch);
    total.ours += outcome.ours;
    if (outcome.libtorch) {
      total.libtorch->profiled += outcome.libtorch->profiled;
      total.libtorch->propagated += outcome.libtorch->propagated;
    }
  }
  total.ours.unknown.clear();
  if (is_all) {
    // What is missing of all: see the last column of each row.
    EXPECT_GE(total.ours.exact.determined_known * 1000, total.ours.exact.determined * kExactPerMille);
    EXPECT_GE(total.ours.symbolic.determined_known * 1000, total.ours.symbolic.determined * kSymbolicPerMille);
  }
  print_row("all", total.ours, total.libtorch);
  std::cout << total.ours.calls_with_equal_words << " calls with the words of another\n";
}

// ---- operators --------------------------------------------------------------------------------------------------------

FactsOutcome check_facts_of_program(const composed::Program& program) {
  const Module module = accelerate(composed::module_of(program), Options().compile(CompileMode::kNever));
  const at::NoGradGuard no_grad;
  module.forward(composed::arguments_of(program, program.calls[0]));
  const auto graph = last_executed_graph();
  std::vector<Arguments> calls;
  for (const composed::Call& call : program.calls) {
    Arguments all = {module.script_module()._ivalue()};
    const Arguments arguments = composed::arguments_of(program, call);
    all.insert(all.end(), arguments.begin(), arguments.end());
    calls.push_back(std::move(all));
  }
  return check(graph, calls);
}

TEST(Facts, HoldInCallsOfOperators) {
  FactsOutcome total;
  for (size_t i = 0; i < composed::templates().size(); ++i) {
    if (const auto program = composed::program_of_template(i, /*seed=*/1)) {
      const FactsOutcome outcome = check_facts_of_program(*program);
      EXPECT_THAT(outcome.contradictions, ::testing::IsEmpty()) << composed::source_of(*program);
      total += outcome;
    }
  }
  total.unknown.clear();
  print_row("operators", total);
  EXPECT_GT(total.exact.tensors, 2000U);
}

// ---- generated graphs -------------------------------------------------------------------------------------------------

// Most of these calls raise; until then they see sizes.
Arguments of_other_sizes(Arguments arguments) {
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().is_contiguous()) {
      const at::Tensor& tensor = argument.toTensor();
      std::vector<int64_t> sizes = tensor.sizes().vec();
      for (int64_t& size : sizes) {
        size = size == 1 ? 1 : 2 * size;
      }
      argument = at::zeros(sizes, tensor.options()).set_requires_grad(tensor.requires_grad());
    }
  }
  return arguments;
}

// Generated graphs have some facts that hold for the sizes they were made for.
std::shared_ptr<const Graph> without_facts(std::unique_ptr<Graph> graph) {
  for_each_node(graph->body(), [](Node* node) {
    for (Value* output : node->outputs()) {
      if (output->facts() != nullptr) {
        output->set_facts({});
      }
    }
  });
  return graph;
}

TEST(Facts, HoldInGeneratedGraphs) {
  const Seeds seeds = seeds_in_part({environment_number("SCONCE_SEED", 1), environment_number("SCONCE_GRAPHS", 100)});
  FactsOutcome total;
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::shared_ptr<const Graph> graph = without_facts(graph_of(generated.text));
    for (const bool requires_grad : {false, true}) {
      std::vector<Arguments> calls;
      for (const int call : {1, 2, 3}) {
        calls.push_back(make_arguments(generated, call, requires_grad));
        calls.push_back(of_other_sizes(calls.back()));
      }
      const FactsOutcome outcome = check(graph, calls);
      EXPECT_THAT(outcome.contradictions, ::testing::IsEmpty()) << "seed " << seed << "\n" << generated.text;
      total += outcome;
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  print_row(std::to_string(seeds.count) + " graphs", total);
  std::cout << total.calls_with_equal_words << " calls with the words of another\n";
  EXPECT_GE(total.calls_with_equal_words, seeds.count);
}

}  // namespace
}  // namespace sconce::testing
