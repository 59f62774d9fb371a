// sconce op: tells all that is known of an operator.
#include "base/nearest_name.h"
#include "report/json.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/report/errors.h"

#include "fusion/program/operators.h"
#include "fusion/program/reductions.h"
#include "kernels/kernel_table.h"
#include "ops/op.h"
#include "ops/rows.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <iostream>
#include <sstream>

namespace sconce::cli {
namespace {

struct OpOptions {
  CommonOptions common;
  std::string name;
};

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string file_of(const OpRow* row) {
  for (const RowFamily& family : row_families()) {
    if (row != nullptr && row >= family.rows.data() && row < family.rows.data() + family.rows.size()) {
      return std::string("src/ops/rows/") + family.name + ".cpp";
    }
  }
  return "none: what LibTorch's registry says";
}

std::string effects_of(const Op& op) {
  std::vector<std::string> effects;
  for (size_t i = 0; i < op.schema->arguments().size(); ++i) {
    if (op.writes_argument(i)) {
      effects.push_back("writes `" + op.schema->arguments()[i].name() + "`");
    }
  }
  const Effects& all = op.all_effects;
  for (const auto& [is_so, what] :
       {std::pair(all.writes && effects.empty(), "writes memory or objects"),
        std::pair(op.may_change_sizes, "may change sizes or strides in place"),
        std::pair(all.random, "draws random numbers"), std::pair(all.external, "prints, warns, raises or waits"),
        std::pair(all.state, "changes the state of the thread or process"),
        std::pair(all.unknown, "not known: as if all of these")}) {
    if (is_so) {
      effects.emplace_back(what);
    }
  }
  return effects.empty() ? "none" : join(effects);
}

std::string memory_of(const Op& op) {
  return op.new_view                   ? "a view of its first operand"
         : op.may_copy                 ? "its first operand, a view of it, or a copy"
         : op.results_may_share_memory ? "may share memory with operands"
                                       : "new, or as the schema marks it";
}

std::string rule_of(const ResultRule& rule) {
  if (!rule.dtypes.empty() || rule.keeps_sizes || !rule.sizes.empty()) {
    return "the row has a rule";
  }
  return rule.differs_on_meta ? "not known: the device decides"
         : rule.runs_on_empty ? "a run on empty tensors"
                              : "a run on meta tensors, where LibTorch has a kernel for them";
}

std::string gradient_of_row(const OpRow& row) {
  const std::string condition =
      row.differentiable_if.empty() ? std::string() : ", if `" + std::string(row.differentiable_if) + "`";
  return !row.backward.empty()   ? "by the row's text" + condition
         : !row.forward.empty()  ? "that of the operators which `forward` calls" + condition
         : row.recorded_gradient ? "recorded from LibTorch's autograd"
                                 : "none of sconce's: the operator is outside of differentiable subgraphs";
}

std::string autocast_of(CpuAutocast autocast) {
  switch (autocast) {
    case CpuAutocast::kNothing: return "nothing";
    case CpuAutocast::kReduced: return "casts to autocast's dtype";
    case CpuAutocast::kFull: return "casts to float32";
    case CpuAutocast::kPromoted: return "casts to the widest dtype";
    case CpuAutocast::kUnknown: return "not known: it runs with autocast on";
  }
  return "";
}

std::string compiled_form_of(const Op& op) {
  return !has_element_rule(op) ? "none"
         : may_reduce(op)      ? "a reduction (src/fusion/program/reductions.cpp)"
                               : "an element rule (src/fusion/program/rules)";
}

Fields fields_of(const Op& op) {
  // Kernels compute what an operator in place writes by the rule of its functional variant.
  const Op& computed = op.functional != nullptr ? *op.functional : op;
  const OpRow* const row = find_op_row(computed.schema->name(), computed.schema->overload_name());
  Fields fields = {{"row", file_of(row)}};
  const auto add = [&](const char* name, std::string text) {
    if (!text.empty()) {
      fields.emplace_back(name, std::move(text));
    }
  };
  add("synonym of", std::string(op.synonym_of));
  add("in place of", op.functional == nullptr ? "" : op.functional->kind.toQualString());
  add("effects", effects_of(op));
  add("results", memory_of(op));
  add("dtypes and sizes", rule_of(op.result));
  add("gradient", gradient_of_row(op.functional_row() == nullptr ? op : *op.functional_row()));
  add("prepared kernel", find_kernel_row(op) == nullptr ? "none" : "yes (src/kernels)");
  add("compiled kernels", compiled_form_of(computed));
  add("caller's autocast", autocast_of(op.cpu_autocast));
  add("in CUDA graphs", op.has_tag(at::Tag::cudagraph_unsafe) || op.may_change_sizes ? "no" : "where its operands allow it");
  add("body", std::string(op.body));
  add("forward", std::string(op.forward));
  add("backward", std::string(op.backward));
  return fields;
}

// Overloads of which the same is known, together.
struct Overloads {
  std::vector<std::string> schemas;
  Fields fields;
};

std::vector<Overloads> overloads_of(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string qualified = name.find("::") == std::string::npos ? "aten::" + name : name;
  const std::string base = dot == std::string::npos ? qualified : qualified.substr(0, qualified.find('.'));
  std::vector<Overloads> found;
  for (const auto& candidate : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(base))) {
    const c10::FunctionSchema& schema = candidate->schema();
    if (dot != std::string::npos && schema.overload_name() != name.substr(dot + 1)) {
      continue;
    }
    std::ostringstream text;
    text << schema;
    Fields fields = fields_of(op_of(schema));
    const auto equal =
        std::find_if(found.begin(), found.end(), [&](const Overloads& each) { return each.fields == fields; });
    if (equal == found.end()) {
      found.push_back({{text.str()}, std::move(fields)});
    } else {
      equal->schemas.push_back(text.str());
    }
  }
  return found;
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for_each_row([&](const OpRow& row) {
    const std::string_view name = row.name.starts_with("aten::") ? row.name.substr(6) : row.name;
    if (names.empty() || names.back() != name) {
      names.emplace_back(name);
    }
  });
  return names;
}

void print_text(const std::vector<Overloads>& found) {
  constexpr size_t kWidth = 19;
  for (const Overloads& each : found) {
    std::cout << join(each.schemas, "\n") << "\n";
    for (const auto& [name, value] : each.fields) {
      std::cout << "  " << name << std::string(kWidth - std::min(kWidth, name.size()), ' ');
      std::istringstream lines(value);
      bool is_first = true;
      for (std::string line; std::getline(lines, line); is_first = false) {
        std::cout << (is_first ? "" : std::string(kWidth + 2, ' ')) << line << "\n";
      }
    }
    std::cout << "\n";
  }
  std::cout << "docs/operators.md has the dtypes and the roundings of kernels, docs/adding_an_op.md says what is tested.\n";
}

int tell_of_operator(const OpOptions& options) {
  prepare(options.common);
  const std::vector<Overloads> found = overloads_of(options.name);
  if (found.empty()) {
    const std::vector<std::string> known = known_names();
    const std::string library = options.name.substr(0, options.name.find("::"));
    const bool is_known_library =
        library == options.name || library == "aten" ||
        std::ranges::any_of(known, [&](const std::string& name) { return name.starts_with(library + "::"); });
    throw UserError("no operator '" + options.name + "'" +
                    (is_known_library ? did_you_mean(options.name, known)
                                      : "; --ops-library LIB.so opens a library that registers operators of " + library));
  }
  if (!options.common.json) {
    print_text(found);
    return kGood;
  }
  Json all = Json::array();
  for (const Overloads& each : found) {
    Json fields = {{"schemas", each.schemas}};
    for (const auto& [name, value] : each.fields) {
      fields[name] = value;
    }
    all.push_back(std::move(fields));
  }
  std::cout << json_text(all);
  return kGood;
}

}  // namespace

void add_op_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<OpOptions>();
  CLI::App& command = add_command(app, chosen, "op", "Tell what sconce knows of an operator", options, tell_of_operator);
  command.add_option("NAME", options->name, "the operator: gelu, aten::add.Tensor, torchvision::nms")->required();
  add_common_options(command, options->common);
  command.footer(
      "Shown for each overload: the file of its row, effects, memory, gradient, kernels, and the row's texts in "
      "TorchScript.\n\n"
      "Examples:\n  sconce op gelu\n  sconce op add.Tensor --json\n  sconce op my::op --ops-library libmy_ops.so\n\n"
      "Exit codes: 0 good, 2 usage, or no such operator.");
}

}  // namespace sconce::cli
