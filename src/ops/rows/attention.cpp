// Attention.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> attention_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::_native_multi_head_attention",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = R"(
def sizes(query: List[int]):
    return query
)"}},
      {.name = "aten::scaled_dot_product_attention",
       .results = Sharing::kFresh,
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(query: List[int], key: List[int], value: List[int]):
    rank = max(len(query), max(len(key), len(value)))
    out: List[int] = []
    for i in range(rank - 2):
        size = 1
        for batch in [value, key, query]:
            at = i + len(batch) - rank
            if at >= 0:
                size = size if batch[at] == 1 else batch[at]
        out.append(size)
    out.append(query[-2])
    out.append(value[-1])
    return out
)"},
       .arithmetic = Arithmetic::kAttention,
       .forward = R"(
flash = False
if not query.is_cuda:
    flash = torch._fused_sdp_choice(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa) == 1
nothing = query.new_empty([0])
mask = attn_mask
made = nothing
noise = nothing
if attn_mask is not None and attn_mask.dtype == 11:
    made = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(torch.logical_not(attn_mask), float("-inf"))
    mask = made
if flash:
    result, kept = torch._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale)
    left = nothing
    right = nothing
else:
    assert attention_accepts(mask, query, key), str(torch.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa))
    factor = torch.sqrt(scale if scale is not None else 1.0 / torch.sqrt(float(query.size(-1))))
    left = query * factor
    right = key * factor
    kept = attention_weights(left, right, mask, is_causal)
    weights = kept
    if dropout_p > 0:
        if query.is_cuda:
            weights, noise = torch.native_dropout(kept, dropout_p, True)
        else:
            noise = torch.empty_like(kept).bernoulli_(1 - dropout_p).div_(1 - dropout_p)
            weights = kept * noise
    result = torch.matmul(weights, value)
return (result, flash, kept, left, right, made, noise)
)",
       .backward = R"(
mask = attn_mask
if attn_mask is not None and attn_mask.dtype == 11:
    mask = saved_4
# Where sizes or the probability tell that LibTorch takes the other way, no backward plan keeps the result.
if query.dim() == 4 and dropout_p == 0 and saved_0:
    of_query, of_key, of_value = torch._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, result, saved_1, dropout_p, is_causal, attn_mask=mask, scale=scale)
else:
    factor = torch.sqrt(scale if scale is not None else 1.0 / torch.sqrt(float(query.size(-1))))
    kept = saved_1
    left = saved_2
    right = saved_3
    if records:
        left = query * factor
        right = key * factor
        kept = attention_weights(left, right, mask, is_causal)
    of_weights = torch.matmul(grad, value.transpose(-2, -1)).sum_to_size(kept.size())
    weights = kept
    if dropout_p > 0:
        if query.is_cuda:
            of_weights = torch.native_dropout_backward(of_weights, saved_5, 1 / (1 - dropout_p))
            weights = torch.native_dropout_backward(kept, saved_5, 1 / (1 - dropout_p))
        else:
            of_weights = of_weights * saved_5
            weights = kept * saved_5
    of_scores = torch._softmax_backward_data(of_weights, kept, -1, query.dtype)
    of_query = (torch.matmul(of_scores, right) * factor).sum_to_size(query.size())
    of_key = (torch.matmul(of_scores.transpose(-2, -1), left) * factor).sum_to_size(key.size())
    of_value = torch.matmul(weights.transpose(-2, -1), grad).sum_to_size(value.size())
return (of_query, of_key, of_value)
)",
       .differentiable_if = R"(
known_dtype = (query.dtype == 6 or query.dtype == 7) and key.dtype == query.dtype and value.dtype == query.dtype
known_dtype = known_dtype and query.dim() > 1 and key.dim() > 1 and value.dim() > 1
known_mask = True
if attn_mask is not None:
    known_mask = attn_mask.dtype == 11 or (attn_mask.dtype == query.dtype and not attn_mask.requires_grad)
    known_mask = known_mask and not is_causal
return known_dtype and known_mask and dropout_p >= 0.0 and dropout_p < 1.0 and not enable_gqa and (scale is None or scale > 0.0)
)"},
      // Operators inside.
      {.name = "aten::_safe_softmax", .results = Sharing::kFresh, .result = {.keeps_sizes = true}},
      {.name = "aten::_scaled_dot_product_flash_attention_for_cpu",
       .results = Sharing::kFresh,
       .result = {.sizes = R"(
def sizes(query: List[int], key: List[int], value: List[int]):
    return (query[:-1] + [value[-1]], [query[0], query[1], query[2]])
)"},
       .arithmetic = Arithmetic::kAttention},
      {.name = "aten::_transform_bias_rescale_qkv", .results = Sharing::kShared},
      {.name = "aten::_transformer_encoder_layer_fwd", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
  };
  return rows;
}

}  // namespace sconce
