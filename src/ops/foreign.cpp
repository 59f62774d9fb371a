#include "ops/foreign.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace sconce {
namespace {

// Namespaces of LibTorch whose operators compute. Those of its profiler do more.
constexpr std::array<std::string_view, 13> kComputing = {
    "aten",   "prim",      "prims",        "_quantized", "inductor", "mkl", "mkldnn", "mkldnn_prepacked",
    "onednn", "prepacked", "quantization", "quantized",  "sparse"};

// Namespaces of collectives: every rank calls them, each as often and in the same order. No tag of LibTorch says so.
constexpr std::array<std::string_view, 4> kCommunicating = {"c10d", "_c10d_functional", "_c10d_functional_autograd",
                                                            "symm_mem"};

}  // namespace

bool may_do_more_than_compute(const c10::OperatorHandle& op) {
  const std::string_view name = op.operator_name().name;
  const std::string_view of = name.substr(0, name.find(':'));
  if (std::ranges::find(kComputing, of) != kComputing.end()) {
    return false;
  }
  if (std::ranges::find(kCommunicating, of) != kCommunicating.end()) {
    return true;
  }
  const c10::FunctionSchema& schema = op.schema();
  const bool is_function =
      !schema.isDefaultAliasAnalysisKind() && schema.aliasAnalysis() == c10::AliasAnalysisKind::PURE_FUNCTION;
  return !is_function && !op.hasTag(at::Tag::pt2_compliant_tag);
}

std::string call_of_library(const c10::OperatorHandle& op) {
  return "calls " + toString(op.operator_name()) + ", an operator of a library";
}

}  // namespace sconce
