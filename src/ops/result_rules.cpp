#include "ops/result_rules.h"

#include "ops/per_schema.h"

namespace sconce {
namespace {

// ---- recurrent layers: the last size is that of the hidden state, of both directions ---------------------------------

constexpr std::string_view kLstmSizes = R"(
def sizes(input: List[int], hx: List[List[int]], params: List[List[int]], has_biases: bool, num_layers: int,
          dropout: float, train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[0][-1] * 2 if bidirectional else hx[0][-1]
    return out, hx[0], hx[1]
)";

constexpr std::string_view kQuantizedLstmSizes = R"(
def sizes(input: List[int], hx: List[List[int]], params: List[int], has_biases: bool, num_layers: int, dropout: float,
          train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[0][-1] * 2 if bidirectional else hx[0][-1]
    return out, hx[0], hx[1]
)";

constexpr std::string_view kPackedLstmSizes = R"(
def sizes(data: List[int], batch_sizes: List[int], hx: List[List[int]], params: List[List[int]], has_biases: bool,
          num_layers: int, dropout: float, train: bool, bidirectional: bool):
    return [data[0], hx[0][-1] * 2 if bidirectional else hx[0][-1]], hx[0], hx[1]
)";

constexpr std::string_view kRecurrentSizes = R"(
def sizes(input: List[int], hx: List[int], params: List[List[int]], has_biases: bool, num_layers: int, dropout: float,
          train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[-1] * 2 if bidirectional else hx[-1]
    return out, hx
)";

constexpr std::string_view kPackedRecurrentSizes = R"(
def sizes(data: List[int], batch_sizes: List[int], hx: List[int], params: List[List[int]], has_biases: bool,
          num_layers: int, dropout: float, train: bool, bidirectional: bool):
    return [data[0], hx[-1] * 2 if bidirectional else hx[-1]], hx
)";

// Packed weights count as a tuple of weight and bias.
constexpr std::string_view kPackedLinearSizes = R"(
def sizes(input: List[int], packed: Tuple[List[int], Optional[List[int]]]):
    out = input.copy()
    out[-1] = packed[0][0]
    return out
)";

// ---- where LibTorch's function is wrong, or a tag ---------------------------------------------------------------------

constexpr std::string_view kPositionSizes = R"(
def sizes(self: List[int], dim: Optional[int], keepdim: bool):
    out: List[int] = []
    for i in range(len(self)):
        if dim is None or i == dim or i == dim + len(self):
            if keepdim:
                out.append(1)
        else:
            out.append(self[i])
    return out
)";

constexpr std::string_view kReducedSizes = R"(
def sizes(self: List[int], dim: List[int], keepdim: bool):
    out: List[int] = []
    for i in range(len(self)):
        is_reduced = len(dim) == 0
        for d in dim:
            if d == i or d + len(self) == i:
                is_reduced = True
        if is_reduced:
            if keepdim:
                out.append(1)
        else:
            out.append(self[i])
    return out
)";

// The last two dims of each; what stands before them is the same in both.
constexpr std::string_view kProductSizes = R"(
def sizes(self: List[int], mat2: List[int]):
    out = self.copy()
    out[-1] = mat2[-1]
    return out
)";

constexpr std::string_view kScalarSizes = R"(
def sizes(self: List[int]):
    out: List[int] = []
    return out
)";

constexpr std::string_view kGivenSizes = "def sizes(size: List[int]):\n    return size\n";
constexpr std::string_view kNewSizes = "def sizes(self: List[int], size: List[int]):\n    return size\n";

constexpr std::string_view kNoSizes = R"(
def sizes(element: float):
    out: List[int] = []
    return out
)";

const std::vector<ResultRule>& rules() {
  using enum ResultDtype;
  static const std::vector<ResultRule> list = {
      // ---- pointwise
      {.op = "aten::relu", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::abs", .dtypes = {kReal}, .keeps_sizes = true},
      {.op = "aten::where.self", .dtypes = {kPromoted}},
      {.op = "aten::batch_norm", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::relu6", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::isnan", .dtypes = {kBool}, .keeps_sizes = true},
      {.op = "aten::isfinite", .dtypes = {kBool}, .keeps_sizes = true},
      {.op = "aten::isinf", .dtypes = {kBool}, .keeps_sizes = true},
      {.op = "aten::floor_divide", .dtypes = {kPromoted}},
      {.op = "aten::__lshift__", .dtypes = {kPromoted}},
      {.op = "aten::__rshift__", .dtypes = {kPromoted}},
      {.op = "aten::_autocast_to_reduced_precision", .keeps_sizes = true, .differs_on_meta = true},
      {.op = "aten::_autocast_to_full_precision", .keeps_sizes = true, .differs_on_meta = true},
      {.op = "aten::hardswish", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::hardsigmoid", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::selu", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::celu", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::prelu", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::rrelu", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::logsigmoid", .dtypes = {kFirst}, .keeps_sizes = true},
      // ---- of all elements, of lists of dims
      {.op = "aten::max.", .dtypes = {kFirst}, .sizes = kScalarSizes},
      {.op = "aten::min.", .dtypes = {kFirst}, .sizes = kScalarSizes},
      {.op = "aten::any.", .sizes = kScalarSizes},
      {.op = "aten::all.", .sizes = kScalarSizes},
      {.op = "aten::amax", .sizes = kReducedSizes},
      {.op = "aten::amin", .sizes = kReducedSizes},
      // ---- made of sizes
      {.op = "aten::empty.memory_format", .sizes = kGivenSizes},
      {.op = "aten::zeros.", .sizes = kGivenSizes},
      {.op = "aten::ones.", .sizes = kGivenSizes},
      {.op = "aten::full.", .sizes = kGivenSizes},
      {.op = "aten::rand.", .sizes = kGivenSizes},
      {.op = "aten::randn.", .sizes = kGivenSizes},
      {.op = "aten::new_empty.", .sizes = kNewSizes},
      {.op = "aten::new_zeros.", .sizes = kNewSizes},
      {.op = "aten::new_ones.", .sizes = kNewSizes},
      {.op = "aten::new_full.", .sizes = kNewSizes},
      {.op = "aten::pad", .sizes = R"(
def sizes(self: List[int], pad: List[int]):
    out = self.copy()
    for i in range(len(pad) // 2):
        out[len(self) - 1 - i] = self[len(self) - 1 - i] + pad[2 * i] + pad[2 * i + 1]
    return out
)"},
      // ---- copies and views of the whole
      {.op = "aten::detach", .keeps_sizes = true},
      {.op = "aten::alias", .keeps_sizes = true},
      {.op = "aten::conj", .keeps_sizes = true},
      {.op = "aten::clone", .keeps_sizes = true},
      {.op = "aten::to", .keeps_sizes = true},
      {.op = "aten::type_as", .keeps_sizes = true},
      {.op = "aten::flip", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::roll", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::cumsum", .keeps_sizes = true},
      {.op = "aten::cumprod", .keeps_sizes = true},
      {.op = "aten::tril", .keeps_sizes = true},
      {.op = "aten::triu", .keeps_sizes = true},
      {.op = "aten::sort", .keeps_sizes = true},
      {.op = "aten::argsort", .keeps_sizes = true},
      {.op = "aten::softmax", .keeps_sizes = true},
      {.op = "aten::log_softmax", .keeps_sizes = true},
      {.op = "aten::layer_norm", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::group_norm", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::instance_norm", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::masked_fill", .dtypes = {kFirst}},
      {.op = "aten::index_fill", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::index_add", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::index_copy", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::scatter", .keeps_sizes = true},
      {.op = "aten::scatter_add", .keeps_sizes = true},
      {.op = "aten::empty_like", .keeps_sizes = true},
      {.op = "aten::zeros_like", .keeps_sizes = true},
      {.op = "aten::ones_like", .keeps_sizes = true},
      {.op = "aten::full_like", .keeps_sizes = true},
      {.op = "aten::rand_like", .keeps_sizes = true},
      {.op = "aten::randn_like", .keeps_sizes = true},
      {.op = "aten::randint_like", .keeps_sizes = true},
      {.op = "aten::bernoulli", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::alpha_dropout", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::feature_dropout", .dtypes = {kFirst}, .keeps_sizes = true},
      // ---- sparse tensors
      {.op = "aten::to_sparse", .keeps_sizes = true, .differs_on_meta = true},
      {.op = "aten::to_sparse_csr", .keeps_sizes = true, .differs_on_meta = true},
      {.op = "aten::to_dense", .keeps_sizes = true, .accepts_sparse = true},
      {.op = "aten::coalesce", .keeps_sizes = true, .accepts_sparse = true},
      {.op = "aten::_sparse_mm", .sizes = kProductSizes, .accepts_sparse = true},
      {.op = "aten::mm", .accepts_sparse = true},
      // ---- selection
      {.op = "aten::argmax", .sizes = kPositionSizes},
      {.op = "aten::argmin", .sizes = kPositionSizes},
      {.op = "aten::isin.Scalar_Tensor", .sizes = kNoSizes, .differs_on_meta = true},
      {.op = "aten::index_select", .dtypes = {kFirst}},
      {.op = "aten::embedding", .dtypes = {kFirst}},
      {.op = "aten::embedding_bag", .dtypes = {kFirst}, .sizes = R"(
def sizes(weight: List[int], indices: List[int], offsets: List[int], scale_grad_by_freq: bool, mode: int, sparse: bool,
          per_sample_weights: Optional[List[int]], include_last_offset: bool):
    return [offsets[0] - 1 if include_last_offset else offsets[0], weight[1]]
)"},
      {.op = "aten::multinomial", .dtypes = {kInt64}, .sizes = R"(
def sizes(self: List[int], num_samples: int):
    out = self.copy()
    out[-1] = num_samples
    return out
)"},
      {.op = "aten::randperm", .sizes = "def sizes(n: int):\n    return [n]\n"},
      {.op = "aten::as_strided", .sizes = "def sizes(self: List[int], size: List[int]):\n    return size\n"},
      {.op = "aten::unflatten.int", .sizes = R"(
def sizes(self: List[int], dim: int, sizes: List[int]):
    if dim < 0:
        dim = dim + len(self)
    known = 1
    for size in sizes:
        if size != -1:
            known = known * size
    out: List[int] = []
    for i in range(dim):
        out.append(self[i])
    for size in sizes:
        out.append(self[dim] // known if size == -1 else size)
    for i in range(dim + 1, len(self)):
        out.append(self[i])
    return out
)"},
      {.op = "aten::reshape", .sizes = R"(
def sizes(self: List[int], shape: List[int]):
    count = 1
    for size in self:
        count = count * size
    known = 1
    for size in shape:
        if size != -1:
            known = known * size
    out: List[int] = []
    for size in shape:
        out.append(count // known if size == -1 else size)
    return out
)"},
      {.op = "aten::movedim.int", .sizes = R"(
def sizes(self: List[int], source: int, destination: int):
    if source < 0:
        source = source + len(self)
    if destination < 0:
        destination = destination + len(self)
    out: List[int] = []
    for i in range(len(self)):
        if i != source:
            out.append(self[i])
    out.insert(destination, self[source])
    return out
)"},
      {.op = "aten::randint", .sizes = "def sizes(high: int, size: List[int]):\n    return size\n"},
      {.op = "aten::randint.low", .sizes = "def sizes(low: int, high: int, size: List[int]):\n    return size\n"},
      {.op = "aten::tensor", .sizes_by_structure = true},
      {.op = "aten::scalar_tensor", .sizes_by_structure = true},
      {.op = "torchvision::nms", .dtypes = {kInt64}},
      // ---- products, networks
      {.op = "aten::conv1d", .dtypes = {kFirst}},
      {.op = "aten::conv2d", .dtypes = {kFirst}},
      {.op = "aten::conv3d", .dtypes = {kFirst}},
      {.op = "aten::conv_transpose1d", .dtypes = {kFirst}},
      {.op = "aten::conv_transpose2d", .dtypes = {kFirst}},
      {.op = "aten::conv_transpose3d", .dtypes = {kFirst}},
      {.op = "aten::convolution", .dtypes = {kFirst}},
      {.op = "aten::_convolution", .dtypes = {kFirst}},
      {.op = "aten::max_pool1d", .dtypes = {kFirst}},
      {.op = "aten::max_pool2d", .dtypes = {kFirst}},
      {.op = "aten::max_pool3d", .dtypes = {kFirst}},
      {.op = "aten::avg_pool1d", .dtypes = {kFirst}},
      {.op = "aten::avg_pool2d", .dtypes = {kFirst}, .sizes = R"(
def sizes(self: List[int], kernel_size: List[int], stride: List[int], padding: List[int], ceil_mode: bool):
    out = self.copy()
    for i in range(2):
        at = len(self) - 2 + i
        kernel = kernel_size[i] if len(kernel_size) == 2 else kernel_size[0]
        step = kernel if len(stride) == 0 else (stride[i] if len(stride) == 2 else stride[0])
        pad = padding[i] if len(padding) == 2 else padding[0]
        if ceil_mode:
            longer = (self[at] + 2 * pad - kernel + step - 1) // step
            out[at] = longer if longer * step >= self[at] + pad else longer + 1
        else:
            out[at] = (self[at] + 2 * pad - kernel) // step + 1
    return out
)"},
      {.op = "aten::adaptive_avg_pool1d", .dtypes = {kFirst}},
      {.op = "aten::adaptive_avg_pool2d", .dtypes = {kFirst}},
      {.op = "aten::adaptive_avg_pool3d", .dtypes = {kFirst}},
      {.op = "aten::_transformer_encoder_layer_fwd", .dtypes = {kFirst}, .keeps_sizes = true},
      {.op = "aten::_native_multi_head_attention", .dtypes = {kFirst, kFirst}, .sizes = R"(
def sizes(query: List[int]):
    return query
)"},
      {.op = "aten::scaled_dot_product_attention", .dtypes = {kFirst}, .sizes = R"(
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
      {.op = "aten::lstm.input", .dtypes = {kFirst, kFirst, kFirst}, .sizes = kLstmSizes},
      {.op = "aten::lstm.data", .dtypes = {kFirst, kFirst, kFirst}, .sizes = kPackedLstmSizes},
      {.op = "aten::gru.input", .dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
      {.op = "aten::gru.data", .dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
      {.op = "aten::rnn_tanh.input", .dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
      {.op = "aten::rnn_tanh.data", .dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
      {.op = "aten::rnn_relu.input", .dtypes = {kFirst, kFirst}, .sizes = kRecurrentSizes},
      {.op = "aten::rnn_relu.data", .dtypes = {kFirst, kFirst}, .sizes = kPackedRecurrentSizes},
      {.op = "aten::quantized_lstm.input", .dtypes = {kFirst, kFirst, kFirst}, .sizes = kQuantizedLstmSizes},
      {.op = "quantized::linear_dynamic", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
      {.op = "quantized::linear_relu_dynamic", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
      {.op = "quantized::linear_dynamic_fp16", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
      {.op = "quantized::linear_relu_dynamic_fp16", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
      {.op = "quantized::linear", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
      {.op = "quantized::linear_relu", .dtypes = {kFirst}, .sizes = kPackedLinearSizes},
  };
  return list;
}

const ResultRule* find(const c10::FunctionSchema& schema) {
  const std::string overload = schema.name() + "." + schema.overload_name();
  for (const ResultRule& rule : rules()) {
    if (rule.op == schema.name() || rule.op == overload) {
      return &rule;
    }
  }
  return nullptr;
}

}  // namespace

const ResultRule* find_result_rule(const c10::FunctionSchema& schema) {
  static thread_local PerSchema<const ResultRule*> known;
  return known.get(schema, find);
}

}  // namespace sconce
