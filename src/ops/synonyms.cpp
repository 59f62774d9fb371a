#include "ops/synonyms.h"

#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

// LibTorch implements the left as a call of the right with the same arguments.
constexpr std::array<std::pair<std::string_view, std::string_view>, 42> kSynonyms = {{
    {"absolute", "abs"},       {"absolute_", "abs_"},
    {"arccos", "acos"},        {"arccosh", "acosh"},
    {"arcsin", "asin"},        {"arcsinh", "asinh"},
    {"arctan", "atan"},        {"arctan2", "atan2"},
    {"arctanh", "atanh"},      {"clip", "clamp"},
    {"clip_", "clamp_"},       {"concat", "cat"},
    {"concatenate", "cat"},    {"det", "linalg_det"},
    {"divide", "div"},         {"divide_", "div_"},
    {"true_divide", "div"},    {"true_divide_", "div_"},
    {"fix", "trunc"},          {"fix_", "trunc_"},
    {"ger", "outer"},          {"greater", "gt"},
    {"greater_", "gt_"},       {"greater_equal", "ge"},
    {"greater_equal_", "ge_"}, {"less", "lt"},
    {"less_", "lt_"},          {"less_equal", "le"},
    {"less_equal_", "le_"},    {"moveaxis", "movedim"},
    {"multiply", "mul"},       {"multiply_", "mul_"},
    {"negative", "neg"},       {"negative_", "neg_"},
    {"not_equal", "ne"},       {"not_equal_", "ne_"},
    {"row_stack", "vstack"},   {"subtract", "sub"},
    {"subtract_", "sub_"},     {"swapaxes", "transpose"},
    {"swapdims", "transpose"}, {"special_expit", "sigmoid"},
}};

}  // namespace

std::optional<c10::Symbol> canonical_name(c10::Symbol kind) {
  static const auto map = [] {
    std::unordered_map<c10::Symbol, c10::Symbol> symbols;
    for (const auto& [synonym, name] : kSynonyms) {
      symbols.emplace(c10::Symbol::aten(std::string(synonym)), c10::Symbol::aten(std::string(name)));
    }
    return symbols;
  }();
  const auto found = map.find(kind);
  return found == map.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace sconce
