// Inputs, outputs, and what each call is made with.
#include "tests/differential/composed/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sconce::testing::composed {
namespace {

constexpr int64_t kN = -1;  // a dimension that differs between calls

}  // namespace

void Generator::make_inputs() {
  const std::vector<int64_t> numbers = {any_of<int64_t>({2, 3, 4}), any_of<int64_t>({1, 5, 6}), any_of<int64_t>({2, 3})};
  result_.calls.resize(numbers.size());
  for (Call& call : result_.calls) {
    call.seed = random_() % 1000;
    call.records_gradients = chance(75);
  }
  result_.calls[0].records_gradients = true;
  const size_t tensors = 2 + pick(3);
  for (size_t i = 0; i < tensors; ++i) {
    std::vector<int64_t> form =
        i == 0 ? any_of<std::vector<int64_t>>({{kN, 3}, {kN, 4}, {3, kN}, {kN, 3, 2}})
               : any_of<std::vector<int64_t>>(
                     {{kN, 3}, {3}, {4}, {}, {kN}, {1}, {kN, 1}, {4, 3}, {2, kN, 3}, {1, 3}, {kN, 4}, {3, 4}});
    Argument argument;
    argument.form = any_of<Form>(
        {Form::kContiguous, Form::kContiguous, Form::kContiguous, Form::kTransposed, Form::kExpanded, Form::kStrided});
    argument.role =
        any_of<Role>({Role::kLeaf, Role::kLeaf, Role::kLeaf, i == 0 ? Role::kLeaf : Role::kPlain, Role::kComputed});
    argument.dtype = i > 0 && chance(15) ? any_of<at::ScalarType>({at::kLong, at::kBool, at::kFloat}) : at::kDouble;
    const bool is_attribute = i > 0 && chance(20);
    if (is_attribute) {
      std::ranges::replace(form, kN, int64_t{3});
      argument.form = Form::kContiguous;
      argument.dtype = at::kDouble;
      argument.role = chance(70) ? Role::kLeaf : Role::kPlain;
    }
    const bool is_optional = i > 0 && !is_attribute && chance(20);
    result_.inputs.push_back({(is_attribute  ? "p"
                               : is_optional ? "o"
                                             : "x") +
                                  std::to_string(i),
                              is_optional ? "Optional[Tensor]" : "Tensor", is_attribute});
    if (i > 0 && !is_attribute && chance(8) && result_.calls[0].arguments[0].role != Role::kLeaf) {
      argument.alias_of = 0;
    }
    const uint64_t seed = random_() % 100000;
    for (size_t call = 0; call < numbers.size(); ++call) {
      Argument own = argument;
      own.sizes = form;
      std::ranges::replace(own.sizes, kN, numbers[call]);
      own.seed = is_attribute ? seed : seed + call;
      own.is_none = is_optional && chance(40);
      if (!is_attribute && chance(10)) {
        own.role = Role::kPlain;
      }
      result_.calls[call].arguments.push_back(own);
    }
  }
  for (const char* type : {"int", "float", "bool"}) {
    result_.inputs.push_back({std::string(1, type[0] == 'i' ? 'k' : type[0]) + "0", type, false});
    for (Call& call : result_.calls) {
      Argument number;
      number.number = type[0] == 'i'   ? static_cast<double>(pick(4))
                      : type[0] == 'f' ? static_cast<double>(pick(9)) / 4 - 1
                                       : static_cast<double>(pick(2));
      call.arguments.push_back(number);
    }
  }
  std::vector<std::vector<c10::IValue>> by_call;
  for (const Call& call : result_.calls) {
    by_call.push_back(values_of(result_.inputs, call));
  }
  for (size_t i = 0; i < result_.inputs.size(); ++i) {
    Variable variable{result_.inputs[i].name, result_.inputs[i].type, {}};
    for (const auto& values : by_call) {
      variable.values.push_back(values[i]);
    }
    variables_.push_back(std::move(variable));
  }
  add("x0.size(" + std::to_string(result_.calls[0].arguments[0].sizes[0] == result_.calls[1].arguments[0].sizes[0] ? 1 : 0) +
      ")");
}

void Generator::choose_outputs() {
  const std::string text = text_of(result_.lines, 0);
  std::vector<std::string> unused;  // results that no statement uses
  for (const Variable& variable : variables_) {
    const size_t first = text.find(variable.name);
    const bool is_input = first == std::string::npos;
    if (!is_input && text.find(variable.name, first + 1) == std::string::npos) {
      unused.push_back(variable.name);
    }
  }
  while (unused.size() > 6) {
    unused.erase(unused.begin() + static_cast<std::ptrdiff_t>(pick(unused.size())));
  }
  result_.outputs = unused;
  for (size_t i = 0; i < 1 + pick(3) || result_.outputs.empty(); ++i) {
    const Variable& any = variables_[pick(variables_.size())];
    const bool takes_any = chance(15) && any.type != "Optional[Tensor]";
    result_.outputs.push_back(takes_any ? any.name : chance(80) ? any_real() : any_tensor());
  }
}

void Generator::make_invalid(Call& call) {
  std::vector<size_t> tensors;
  for (size_t i = 0; i < result_.inputs.size(); ++i) {
    if (!result_.inputs[i].is_attribute && result_.inputs[i].type == "Tensor" && call.arguments[i].alias_of < 0) {
      tensors.push_back(i);
    }
  }
  Argument& argument = call.arguments[tensors[pick(tensors.size())]];
  std::vector<int64_t>& sizes = argument.sizes;
  switch (pick(7)) {
    case 0:
      if (!sizes.empty()) {
        sizes[pick(sizes.size())] += 1;
      }
      break;
    case 1:
      if (!sizes.empty()) {
        sizes[pick(sizes.size())] = 0;
      }
      break;
    case 2:
      if (!sizes.empty()) {
        sizes.pop_back();
      }
      break;
    case 3: sizes.insert(sizes.begin(), 2); break;
    case 4: argument.dtype = any_of<at::ScalarType>({at::kFloat, at::kLong, at::kBool}); break;
    case 5: std::ranges::fill(sizes, int64_t{1}); break;
    default:
      for (size_t i = 0; i < result_.inputs.size(); ++i) {
        if (result_.inputs[i].name == "k0") {
          call.arguments[i].number = any_of<double>({-1, 0, 5, 9});
        }
      }
  }
}

void Generator::choose_calls() {
  for (Call& call : result_.calls) {
    for (size_t i = 0; i < result_.outputs.size(); ++i) {
      call.asked.push_back(chance(75));
    }
    call.second_order = call.records_gradients && chance(45);
  }
  const std::vector<Call> valid = result_.calls;
  result_.calls.clear();
  const auto again = [&](size_t which) { result_.calls.push_back(valid[which]); };
  again(0);
  if (chance(60)) {
    again(0);
  }
  again(1);
  Call wrong = valid[pick(valid.size())];
  if (chance(50)) {
    for (size_t i = 0; i < result_.inputs.size(); ++i) {
      if (result_.inputs[i].name == "k0") {
        wrong.arguments[i].number = number_of_mistake_;
      }
    }
  } else {
    make_invalid(wrong);
  }
  if (chance(70)) {
    result_.calls.push_back(wrong);
  }
  again(chance(50) ? 0 : 2);
  if (chance(30)) {
    make_invalid(wrong);
    result_.calls.push_back(wrong);
    again(1);
  }
}

Program Generator::run() {
  lines_ = &result_.lines;
  make_inputs();
  const size_t statements = 3 + pick(9);
  add_optional();
  for (size_t i = 0; i < statements; ++i) {
    i < kTemplatesInOrder ? add_template(templates()[(result_.seed * kTemplatesInOrder + i) % templates().size()])
                          : add_statement();
    if (chance(5)) {
      add_guarded_mistake();
    }
  }
  if (chance(30)) {
    add_guarded_mistake();
  }
  choose_outputs();
  if (chance(85)) {
    remove_dead_lines(result_);
  }
  choose_calls();
  return std::move(result_);
}

std::optional<Program> Generator::run_template(const Template& form) {
  lines_ = &result_.lines;
  make_inputs();
  const size_t lines = lines_->size();
  add_template(form);
  if (lines_->size() == lines) {
    return std::nullopt;
  }
  choose_outputs();
  choose_calls();
  return std::move(result_);
}

std::optional<Program> program_of_template(size_t index, uint64_t seed) {
  return Generator(seed).run_template(templates()[index]);
}

Program generate_program(uint64_t seed) { return Generator(seed).run(); }

}  // namespace sconce::testing::composed
