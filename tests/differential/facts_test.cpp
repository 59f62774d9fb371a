// What propagate_facts claims, against what runs of the same graphs see.
#include "tests/differential/facts_claims.h"
#include "tests/differential/memory_claims.h"
#include "tests/differential/model_files.h"
#include "tests/support/environment_number.h"
#include "tests/support/graph_generator.h"
#include "tests/support/graphs.h"

#include "executor/compile.h"
#include "executor/specialize_types.h"
#include "ir/facts.h"
#include "ir/print.h"
#include "plan/run_plan.h"
#include "tools/sconce/cases.h"
#include "tools/sconce/ops_library.h"

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

namespace sconce::testing {
namespace {

using Detail = ArgumentSpecCreator::Detail;

// ---- how much is it? --------------------------------------------------------------------------------------------------

struct Coverage {
  size_t tensors = 0;  // values that the runs made
  size_t known = 0;    // of them with dtype, rank and every size
  size_t strides = 0;  // and every stride

  void operator+=(const Coverage& other) {
    tensors += other.tensors;
    known += other.known;
    strides += other.strides;
  }
};

bool all_known(const std::optional<std::vector<Dim>>& dims) {
  return dims && std::none_of(dims->begin(), dims->end(), [](Dim dim) { return dim.is_unknown(); });
}

struct Outcome {
  std::vector<std::string> contradictions;
  Coverage exact;
  Coverage symbolic;
  std::map<std::string, size_t> unknown;  // by the operator whose result is not known, though its operands are
};

void compare(const Graph& claimed, const Graph& seen, Coverage& coverage, Outcome& outcome) {
  const auto claims = values_in_order(claimed);
  const auto sights = values_in_order(seen);
  SymbolNumbers symbols;
  for (size_t i = 0; i < claims.size(); ++i) {
    const TensorFacts* sight = sights[i]->facts();
    const bool is_tensor = claims[i]->type()->kind() == c10::TypeKind::TensorType;
    // What no run made has the facts of the text, which name no device.
    if (!is_tensor || sight == nullptr || sight->defined == false || !sight->sizes || !sight->device) {
      continue;
    }
    const TensorFacts claim = claims[i]->facts() == nullptr ? TensorFacts{} : *claims[i]->facts();
    if (contradict(claim, *sight, symbols)) {
      outcome.contradictions.push_back(std::string(claims[i]->node()->kind().toQualString()) + ": " + to_string(claim) +
                                       ", seen was " + to_string(*sight));
    }
    const bool is_known = claim.dtype && all_known(claim.sizes);
    coverage.tensors += 1;
    coverage.known += is_known ? 1 : 0;
    coverage.strides += is_known && (claim.sizes->empty() || all_known(claim.strides)) ? 1 : 0;
    if (!is_known) {
      const auto operands = claims[i]->node()->inputs();
      const bool is_first = std::none_of(operands.begin(), operands.end(), [](const Value* operand) {
        return operand->type()->kind() == c10::TypeKind::TensorType &&
               (operand->facts() == nullptr || !operand->facts()->dtype || !all_known(operand->facts()->sizes));
      });
      if (is_first) {
        ++outcome.unknown[claims[i]->node()->kind().toQualString()];
      }
    }
  }
}

Outcome check(const std::shared_ptr<const Graph>& graph, const std::vector<c10::IValue>& arguments) {
  Outcome outcome;
  std::array<std::unique_ptr<Graph>, 2> claimed = {graph->clone(), graph->clone()};
  for (const auto& [detail, at] : {std::pair(Detail::kShapes, 0), std::pair(Detail::kRanks, 1)}) {
    const GivenFacts given = specialize_types(*claimed[at], arguments, detail);
    propagate_facts(*claimed[at], given);
    const std::string first = print(*claimed[at]);
    propagate_facts(*claimed[at], given);
    EXPECT_EQ(print(*claimed[at]), first) << "the second time, too, something was found";
  }
  auto compiled = compile_profiled(graph);
  if (!compiled) {
    std::cout << "not run: " << compiled.refusal().reason << "\n";
    return outcome;
  }
  const Profiled& profiled = *compiled;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(argument.isObject() ? argument : argument.deepcopy());
  }
  at::manual_seed(0);
  try {
    run_plan(*profiled.plan, stack, false);
  } catch (const std::exception&) {
    // What has run until then was seen.
  }
  const std::unique_ptr<Graph> seen = profiled.profile->annotated_graph();
  compare(*claimed[0], *seen, outcome.exact, outcome);
  compare(*claimed[1], *seen, outcome.symbolic, outcome);
  return outcome;
}

std::string percent(size_t part, size_t whole) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << (whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole)) << " %";
  return out.str();
}

void print_row(const std::string& name, const Outcome& outcome) {
  std::cout << std::left << std::setw(40) << name << std::right << std::setw(8) << outcome.exact.tensors << std::setw(10)
            << percent(outcome.exact.known, outcome.exact.tensors) << std::setw(10)
            << percent(outcome.exact.strides, outcome.exact.tensors) << std::setw(10)
            << percent(outcome.symbolic.known, outcome.symbolic.tensors);
  for (const auto& [op, count] : outcome.unknown) {
    std::cout << "  " << op << " " << count;
  }
  std::cout << "\n";
}

// ---- models -----------------------------------------------------------------------------------------------------------

Outcome check_model(const std::string& name) {
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
  std::vector<c10::IValue> all = {module.script_module()._ivalue()};
  const auto schema = module.script_module().get_method(cases.method).function().getSchema();
  all.insert(all.end(), cases.inputs[0].begin(), cases.inputs[0].end());
  for (size_t i = all.size(); i < schema.arguments().size(); ++i) {
    all.push_back(*schema.arguments()[i].default_value());
  }
  return check(graph, all);
}

TEST(Facts, HoldInModels) {
  cli::open_ops_library(plugin_file("torchvision_ops"));
  Outcome total;
  std::vector<std::string> names = model_names();
  const std::vector<std::string> more = model_names("torchvision_ops");
  names.insert(names.end(), more.begin(), more.end());
  // The smallest of them, if not told otherwise.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::file_size(model_file(a)) < std::filesystem::file_size(model_file(b));
  });
  names.resize(std::min<size_t>(names.size(), environment_number("SCONCE_FACTS_MODELS", 50)));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    if (std::holds_alternative<cli::OperatorCases>(cli::read_cases(cases_file(name)))) {
      continue;
    }
    const Outcome outcome = check_model(name);
    EXPECT_THAT(outcome.contradictions, ::testing::IsEmpty());
    print_row(name, outcome);
    total.exact += outcome.exact;
    total.symbolic += outcome.symbolic;
  }
  print_row("all", total);
}

// ---- generated graphs -------------------------------------------------------------------------------------------------

TEST(Facts, HoldInGeneratedGraphs) {
  const uint64_t first = environment_number("SCONCE_SEED", 1);
  const uint64_t count = environment_number("SCONCE_GRAPHS", 200);
  Outcome total;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const GeneratedGraph generated = generate_graph(seed);
    const std::shared_ptr<const Graph> graph = graph_of(generated.text);
    for (const bool requires_grad : {false, true}) {
      const Outcome outcome = check(graph, make_arguments(generated, 1, requires_grad));
      EXPECT_THAT(outcome.contradictions, ::testing::IsEmpty()) << "seed " << seed << "\n" << generated.text;
      total.exact += outcome.exact;
      total.symbolic += outcome.symbolic;
      for (const auto& [op, times] : outcome.unknown) {
        total.unknown[op] += times;
      }
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  print_row(std::to_string(count) + " graphs", total);
}

}  // namespace
}  // namespace sconce::testing
