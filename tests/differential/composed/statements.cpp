#include "tests/differential/composed/generator.h"

#include "tools/peers/executor_settings.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <algorithm>
#include <cmath>

namespace sconce::testing::composed {
namespace {

constexpr int64_t kMaxElements = 4000;
constexpr double kLargest = 1e3;

bool is_tame(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.numel() > kMaxElements || tensor.is_quantized()) {
    return false;
  }
  if (!tensor.is_floating_point() || tensor.numel() == 0) {
    return true;
  }
  const double largest = tensor.detach().to(at::kDouble).abs().max().item().toDouble();
  return std::isfinite(largest) && largest <= kLargest;
}

bool is_tame(const c10::IValue& value) {
  if (value.isTensor()) {
    return is_tame(value.toTensor());
  }
  if (value.isList()) {
    const auto list = value.toList();
    return list.size() < 64 && std::ranges::all_of(list, [](const c10::IValue& each) { return is_tame(each); });
  }
  return value.isInt()      ? std::abs(value.toInt()) <= 100'000
         : value.isDouble() ? std::abs(value.toDouble()) <= kLargest
                            : value.isBool() || value.isString() || value.isNone();
}

bool is_usable(const std::string& type) {
  static const std::set<std::string> all = {"Tensor",    "int",         "float",      "bool",        "str",
                                            "List[int]", "List[float]", "List[bool]", "List[Tensor]"};
  return all.contains(type);
}

}  // namespace

bool is_real(const c10::IValue& value) { return value.isTensor() && value.toTensor().scalar_type() == at::kDouble; }

const Variable* Generator::find(const std::string& name) const {
  const auto found = std::ranges::find(variables_, name, &Variable::name);
  return found == variables_.end() ? nullptr : &*found;
}

std::string Generator::parameters_of(const std::string& text, std::vector<const Variable*>& used) const {
  std::string parameters;
  for (const std::string& name : names_in(text)) {
    if (const Variable* variable = find(name)) {
      used.push_back(variable);
      parameters += (parameters.empty() ? "" : ", ") + name + ": " + variable->type;
    }
  }
  return parameters;
}

std::optional<Generator::Results> Generator::evaluate(const std::string& body) {
  std::vector<const Variable*> used;
  const std::string source = "def s(" + parameters_of(body, used) + "):\n" + body;
  const peers::ExecutorScope eager({.optimize = false});
  try {
    torch::jit::CompilationUnit unit;
    unit.define(std::nullopt, source, operator_resolver(), nullptr);
    torch::jit::Function& function = unit.get_function("s");
    const c10::TypePtr type = function.getSchema().returns()[0].type();
    const bool is_tuple = type->kind() == c10::TypeKind::TupleType;
    Results results;
    for (const c10::TypePtr& each : is_tuple ? type->containedTypes() : at::ArrayRef<c10::TypePtr>(type)) {
      results.types.push_back(each->annotation_str());
      results.values.emplace_back();
    }
    for (size_t call = 0; call < result_.calls.size(); ++call) {
      const at::AutoGradMode grad_mode(result_.calls[call].records_gradients);
      std::vector<c10::IValue> arguments;
      for (const Variable* variable : used) {
        arguments.push_back(variable->values[call]);
      }
      const c10::IValue value = function(std::move(arguments));
      for (size_t i = 0; i < results.types.size(); ++i) {
        results.values[i].push_back(is_tuple ? value.toTupleRef().elements()[i] : value);
      }
    }
    return results;
  } catch (const std::exception& rejected) {
    return std::nullopt;
  }
}

std::optional<std::string> Generator::add(const std::string& expression, bool may_be_wild) {
  const auto results = evaluate("    return " + expression + "\n");
  if (!results || results->types.empty()) {
    return std::nullopt;
  }
  if (results->types[0] == "None" || results->types[0] == "NoneType") {
    lines_->push_back({expression});
    return "";
  }
  std::string names;
  std::vector<Variable> made;
  for (size_t i = 0; i < results->types.size(); ++i) {
    const bool all_tame = std::ranges::all_of(results->values[i], [](const c10::IValue& value) { return is_tame(value); });
    if (!is_usable(results->types[i]) || (!all_tame && !may_be_wild)) {
      return std::nullopt;
    }
    const bool is_tensor = results->types[i] == "Tensor";
    made.push_back({new_name(is_tensor                               ? 'v'
                             : results->types[i].starts_with("List") ? 'l'
                                                                     : 'k'),
                    results->types[i], results->values[i]});
    names += (i == 0 ? "" : ", ") + made.back().name;
  }
  lines_->push_back({names + " = " + expression});
  variables_.insert(variables_.end(), made.begin(), made.end());
  return made[0].name;
}

bool Generator::add(const Lines& lines, const std::vector<std::string>& defined) {
  std::string names;
  for (const std::string& name : defined) {
    names += name + ", ";
  }
  const auto results = evaluate(text_of(lines, 1) + "    return (" + names + "0)\n");
  if (!results) {
    return false;
  }
  for (size_t i = 0; i < defined.size(); ++i) {
    if (!is_usable(results->types[i]) ||
        !std::ranges::all_of(results->values[i], [](const c10::IValue& value) { return is_tame(value); })) {
      return false;
    }
  }
  lines_->insert(lines_->end(), lines.begin(), lines.end());
  for (size_t i = 0; i < defined.size(); ++i) {
    variables_.push_back({defined[i], results->types[i], results->values[i]});
  }
  return true;
}

void Generator::attempt(const std::function<bool()>& statement) {
  const size_t lines = lines_->size();
  const size_t variables = variables_.size();
  if (!statement()) {
    lines_->resize(lines);
    variables_.resize(variables);
  }
}

std::vector<std::string> Generator::names_where(const std::string& type, const Predicate& every) const {
  std::vector<std::string> names;
  for (const Variable& variable : variables_) {
    if (variable.type == type && std::ranges::all_of(variable.values, every)) {
      names.push_back(variable.name);
    }
  }
  return names;
}

std::optional<std::string> Generator::any_where(const std::string& type, const Predicate& every) {
  const std::vector<std::string> names = names_where(type, every);
  if (names.empty()) {
    return std::nullopt;
  }
  return names[chance(60) ? std::max(pick(names.size()), pick(names.size())) : pick(names.size())];
}

// There always is one: the first input.
std::string Generator::any_real() { return *any_where("Tensor", is_real); }

std::string Generator::any_tensor() {
  return *any_where("Tensor", [](const c10::IValue&) { return true; });
}

std::string Generator::small_int(int64_t low, int64_t high) {
  const auto fits = [&](const c10::IValue& value) { return value.toInt() >= low && value.toInt() <= high; };
  const auto found = chance(60) ? any_where("int", fits) : std::nullopt;
  return found ? *found : std::to_string(low + static_cast<int64_t>(pick(static_cast<size_t>(high - low + 1))));
}

std::string Generator::any_number() {
  if (chance(40)) {
    return any_of<std::string>({"2", "0.5", "1.25", "-0.75", "-1", "3"});
  }
  const auto small = [](const c10::IValue& value) { return value.isInt() || std::abs(value.toDouble()) < 8; };
  const auto found = any_where(chance(50) ? "float" : "int", small);
  return found ? *found : "1.5";
}

}  // namespace sconce::testing::composed
