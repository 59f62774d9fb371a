#include "ops/autocast_policy.h"

#include <array>
#include <string_view>
#include <unordered_map>

namespace sconce {
namespace {

constexpr std::array<std::string_view, 28> kReducedOps = {"_convolution",
                                                          "_convolution_nogroup",
                                                          "conv1d",
                                                          "conv2d",
                                                          "conv3d",
                                                          "conv_tbc",
                                                          "conv_transpose1d",
                                                          "convolution",
                                                          "cudnn_convolution",
                                                          "cudnn_convolution_transpose",
                                                          "prelu",
                                                          "addmm",
                                                          "addmv",
                                                          "addr",
                                                          "matmul",
                                                          "mm",
                                                          "mv",
                                                          "linear",
                                                          "addbmm",
                                                          "baddbmm",
                                                          "bmm",
                                                          "chain_matmul",
                                                          "_thnn_fused_lstm_cell",
                                                          "_thnn_fused_gru_cell",
                                                          "lstm_cell",
                                                          "gru_cell",
                                                          "rnn_tanh_cell",
                                                          "rnn_relu_cell"};

constexpr std::array<std::string_view, 41> kFullOps = {"native_layer_norm",
                                                       "acos",
                                                       "asin",
                                                       "cosh",
                                                       "erfinv",
                                                       "exp",
                                                       "expm1",
                                                       "log",
                                                       "log10",
                                                       "log2",
                                                       "log1p",
                                                       "reciprocal",
                                                       "rsqrt",
                                                       "sinh",
                                                       "tan",
                                                       "pow",
                                                       "softplus",
                                                       "gelu",
                                                       "layer_norm",
                                                       "group_norm",
                                                       "frobenius_norm",
                                                       "nuclear_norm",
                                                       "cosine_similarity",
                                                       "cosine_embedding_loss",
                                                       "nll_loss",
                                                       "nll_loss2d",
                                                       "hinge_embedding_loss",
                                                       "kl_div",
                                                       "l1_loss",
                                                       "smooth_l1_loss",
                                                       "mse_loss",
                                                       "margin_ranking_loss",
                                                       "multilabel_margin_loss",
                                                       "soft_margin_loss",
                                                       "triplet_margin_loss",
                                                       "multi_margin_loss",
                                                       "binary_cross_entropy_with_logits",
                                                       "dist",
                                                       "pdist",
                                                       "cdist",
                                                       "renorm"};

constexpr std::array<std::string_view, 5> kFullUnlessDtypeOps = {"prod", "log_softmax", "cumprod", "cumsum", "sum"};

constexpr std::array<std::string_view, 1> kFullOnCudaUnlessDtypeOps = {"softmax"};

constexpr std::array<std::string_view, 16> kWidestOps = {"addcdiv", "addcmul", "atan2",     "bilinear", "cat",       "cross",
                                                         "dot",     "equal",   "index_put", "stack",    "tensordot", "add",
                                                         "sub",     "mul",     "div",       "_cat"};

const std::unordered_map<std::string_view, AutocastPolicy>& policies() {
  static const auto table = [] {
    std::unordered_map<std::string_view, AutocastPolicy> map;
    const auto add = [&map](const auto& names, AutocastPolicy policy) {
      for (const std::string_view name : names) {
        map.emplace(name, policy);
      }
    };
    add(kReducedOps, AutocastPolicy::kReduced);
    add(kFullOps, AutocastPolicy::kFull);
    add(kFullUnlessDtypeOps, AutocastPolicy::kFullUnlessDtype);
    add(kFullOnCudaUnlessDtypeOps, AutocastPolicy::kFullOnCudaUnlessDtype);
    add(kWidestOps, AutocastPolicy::kWidest);
    return map;
  }();
  return table;
}

}  // namespace

AutocastPolicy autocast_policy(const c10::FunctionSchema& schema) {
  constexpr std::string_view kNamespace = "aten::";
  const std::string_view name = schema.name();
  if (!name.starts_with(kNamespace) || schema.is_mutable()) {
    return AutocastPolicy::kNone;
  }
  const auto found = policies().find(name.substr(kNamespace.size()));
  return found == policies().end() ? AutocastPolicy::kNone : found->second;
}

}  // namespace sconce
