// Operands: results of earlier statements, brought to the sizes and the range that an operator accepts.
#include "tests/differential/composed/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sconce::testing::composed {
namespace {

// The range of an operand's elements.
struct Range {
  double low;
  double high;
};

Range range_of(Hole::Kind kind) {
  switch (kind) {
    case Hole::Kind::kPositive: return {0.05, 8};
    case Hole::Kind::kUnit: return {0.05, 0.95};
    default: return {-4, 4};
  }
}

bool is_within(const at::Tensor& tensor, Range range) {
  return tensor.numel() == 0 ||
         (tensor.detach().min().item().toDouble() >= range.low && tensor.detach().max().item().toDouble() <= range.high);
}

}  // namespace

std::optional<std::vector<Generator::Sizes>> Generator::sizes_in_calls(const std::string& sizes) {
  if (sizes == "[]") {
    return std::vector<Sizes>(result_.calls.size());
  }
  const auto results = evaluate("    return " + sizes + "\n");
  if (!results || results->types[0] != "List[int]") {
    return std::nullopt;
  }
  std::vector<Sizes> all;
  for (const c10::IValue& value : results->values[0]) {
    all.push_back(value.toIntVector());
  }
  return all;
}

bool Generator::has_sizes(const std::string& name, const std::vector<Sizes>& wanted) const {
  const Variable* variable = find(name);
  for (size_t call = 0; call < wanted.size(); ++call) {
    if (variable->values[call].toTensor().sizes() != at::IntArrayRef(wanted[call])) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> Generator::existing(const Hole& hole, const std::vector<Sizes>& wanted) {
  const bool is_mask = hole.kind == Hole::Kind::kMask;
  std::vector<std::string> names = names_where("Tensor", [&](const c10::IValue& value) {
    const at::Tensor& tensor = value.toTensor();
    return is_mask ? tensor.scalar_type() == at::kBool
                   : tensor.scalar_type() == at::kDouble && is_within(tensor, range_of(hole.kind));
  });
  std::erase_if(names, [&](const std::string& name) { return !has_sizes(name, wanted); });
  return names.empty() ? std::nullopt : std::optional(names[pick(names.size())]);
}

// One view, sum, join or copy.
std::string Generator::view_of(const std::string& v) {
  const std::string dim = any_of<std::string>({"0", "-1", "1"});
  switch (pick(24)) {
    case 0: return v + ".sum(" + dim + ")";
    case 1: return v + ".mean(" + dim + ")";
    case 2: return v + ".sum(" + dim + ", keepdim=True)";
    case 3: return v + ".select(" + dim + ", 0)";
    case 4: return v + ".transpose(0, " + dim + ")";
    case 5: return v + ".unsqueeze(" + dim + ")";
    case 6: return "torch.stack([" + v + ", " + v + "]).mean(0)";
    case 7: return "torch.cat([" + v + ", " + v + "], " + dim + ")";
    case 8: return v + ".chunk(2, " + dim + ")[0]";
    case 9: return v + ".narrow(" + dim + ", 0, 1)";
    case 10: return v + ".expand([2, -1])";
    case 11: return v + ".reshape([-1])";
    case 12: return v + ".squeeze(" + dim + ")";
    case 13: return v + ".t()";
    case 14: return v + "[" + any_of<std::string>({"0", "-1", "1:", ":, 0", "..., :1", "None", "::2", ":-1"}) + "]";
    case 15: return v + ".flip([" + dim + "])";
    case 16: return v + ".amax(" + dim + ")";
    case 17: return v + ".permute([1, 0])";
    case 18: return v + ".contiguous()";
    case 19: return v + ".clone()";
    case 20: return v + ".unbind(" + dim + ")[0]";
    case 21: return v + ".diagonal()";
    case 22: return "torch.matmul(" + v + ", " + v + ".transpose(-1, -2))";
    default: return v + ".cumsum(" + dim + ")";
  }
}

// Tries one or two views; then what works for any sizes.
std::optional<std::string> Generator::reshaped(const std::string& from, const std::string& sizes,
                                               const std::vector<Sizes>& wanted) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const size_t lines_before = lines_->size();
    const size_t variables_before = variables_.size();
    auto name = chance(20)   ? add(from + ".expand(" + sizes + ")")
                : chance(15) ? add(from + ".reshape(" + sizes + ")")
                             : add(view_of(from));
    if (name && !has_sizes(*name, wanted)) {
      name = chance(20) ? add(*name + ".expand(" + sizes + ")") : add(view_of(*name));
    }
    if (name && is_real(find(*name)->values[0]) && has_sizes(*name, wanted)) {
      return name;
    }
    lines_->resize(lines_before);
    variables_.resize(variables_before);
  }
  return std::nullopt;
}

std::string Generator::flattened(const std::string& from, const std::string& sizes) {
  const std::string flat = from + ".reshape([-1])";
  const std::string like = "torch.ones(" + sizes + ", dtype=7)";
  switch (pick(6)) {
    case 0: return from + ".mean() * " + like;
    case 1: return from + ".sum().tanh().expand(" + sizes + ")";
    case 2: return "torch.cat([" + flat + ", " + like + ".reshape([-1])])[:" + like + ".numel()].reshape(" + sizes + ")";
    case 3: return flat + ".repeat([" + like + ".numel()])[:" + like + ".numel()].view(" + sizes + ")";
    case 4: return flat + "[torch.arange(" + like + ".numel()) % " + from + ".numel()].reshape(" + sizes + ")";
    default:
      return flat + ".index_select(0, torch.arange(" + like + ".numel()).remainder(" + from + ".numel())).view(" + sizes +
             ")";
  }
}

std::string Generator::in_range(std::string name, Hole::Kind kind) {
  const bool fits = std::ranges::all_of(
      find(name)->values, [&](const c10::IValue& value) { return is_within(value.toTensor(), range_of(kind)); });
  if (fits && (kind == Hole::Kind::kReal || kind == Hole::Kind::kWritten)) {
    return name;
  }
  std::string expression;
  if (kind == Hole::Kind::kPositive) {
    expression = any_of<std::string>({"torch.exp(torch.tanh(V))", "torch.sigmoid(V) * 2 + 0.5", "torch.tanh(V) + 1.5"});
  } else if (kind == Hole::Kind::kUnit) {
    expression = any_of<std::string>({"torch.sigmoid(V) * 0.8 + 0.1", "torch.tanh(V) * 0.4 + 0.5"});
  } else {
    expression = any_of<std::string>({"torch.tanh(V) * 2", "torch.sin(V)", "torch.sigmoid(V)"});
  }
  return add(with_name_replaced(expression, "V", name)).value_or(name);
}

std::string Generator::operand(const Hole& hole, const std::string& n) {
  const std::string sizes = with_name_replaced(hole.sizes, "n", n);
  const auto wanted = sizes_in_calls(sizes);
  if (!wanted) {
    return "?";
  }
  if (hole.kind == Hole::Kind::kIndex) {
    const std::string high = with_name_replaced(hole.high, "n", n);
    const std::string real = operand({Hole::Kind::kReal, hole.sizes, ""}, n);
    // Rounding decides nothing where results saturate at 1.
    return add("torch.floor(torch.abs(" + real + ") * 6.7).to(4) % " + high).value_or("?");
  }
  if (const auto found = existing(hole, *wanted); found && chance(hole.kind == Hole::Kind::kWritten ? 25 : 50)) {
    return *found;
  }
  if (hole.kind == Hole::Kind::kMask) {
    const std::string real = operand({Hole::Kind::kReal, hole.sizes, ""}, n);
    return add(real + any_of<std::string>({" > 0.1", " < 0.3", " >= -0.2", ".ne(0.7)"})).value_or("?");
  }
  const std::string from = any_real();
  auto name = reshaped(from, sizes, *wanted);
  for (int attempt = 0; attempt < 3 && !name; ++attempt) {
    name = add(flattened(from, sizes));
  }
  if (!name) {
    return add("torch.rand(" + sizes + ", dtype=7) + 0.5").value_or("?");
  }
  // A leaf that requires a gradient, or a view of one, must not be written.
  if (hole.kind == Hole::Kind::kWritten && chance(80)) {
    name = add(*name + any_of<std::string>({".clone()", " * 1", ".contiguous() + 0"})).value_or(*name);
  } else if (chance(10)) {
    name = add(*name + ".transpose(0, -1).contiguous().transpose(0, -1)").value_or(*name);
  }
  return in_range(*name, hole.kind);
}

std::optional<std::string> Generator::filled(const Template& form) {
  const std::string n = small_int(1, 5);
  std::string expression = with_name_replaced(form.pieces[0], "n", n);
  for (size_t i = 0; i < form.holes.size(); ++i) {
    const std::string name = operand(form.holes[i], n);
    if (name == "?") {
      return std::nullopt;
    }
    expression += name + with_name_replaced(form.pieces[i + 1], "n", n);
  }
  return expression;
}

}  // namespace sconce::testing::composed
