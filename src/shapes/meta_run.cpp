#include "shapes/meta_run.h"

#include "base/compiled_meta_kernels.h"
#include "ops/libtorch_workarounds.h"
#include "shapes/meta_operands.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

class MetaRunner {
 public:
  MetaRunner(const Node& node, const AbstractValues& operands, c10::ArrayRef<const TensorFacts*> tensors,
             SizeArithmetic& arithmetic)
      : node_(node), schema_(*node.schema()), operands_(operands), tensors_(tensors), arithmetic_(arithmetic) {}

  std::optional<MetaRun> run() const {
    const ResultRule& rule = node_.op().result;
    const bool runs_on_empty = rule.differs_on_meta || rule.runs_on_empty || (rule.accepts_sparse && !are_strided(tensors_));
    if (node_.op().registered == nullptr || schema_.is_vararg() ||
        (runs_on_empty && common_device_of(tensors_) != c10::Device(at::kCPU))) {
      return std::nullopt;
    }
    if (runs_on_empty) {
      return run_as({.device = at::kCPU});
    }
    auto found = run_as({.device = at::kMeta});
    // Examples of sizes that are not known may not fit together. Equal ones do.
    return found || !checks_sizes() ? found : run_as({.device = at::kMeta, .has_equal_sizes = true});
  }

 private:
  struct Trial {
    c10::DeviceType device;
    bool has_equal_sizes = false;
  };

  // Returns whether sizes that do not fit are an error. Some operators, such as `aten::gru`, read past the end instead.
  bool checks_sizes() const {
    const Op& op = node_.op();
    return op.has_tag(at::Tag::pointwise) || op.has_tag(at::Tag::core) || op.affine || op.product;
  }

  std::optional<MetaRun> run_as(Trial trial) const {
    const auto has_no_rank = [](const TensorFacts* tensor) { return !tensor->sizes; };
    const auto without_rank = static_cast<size_t>(std::ranges::count_if(tensors_, has_no_rank));
    return without_rank == 0 ? run_with(trial, {}) : run_with_ranks(trial, without_rank);
  }

  // Tries common numbers of dimensions. Where operands differ in their dtypes, LibTorch's promotion asks which ones have no
  // dimension: all cases must have one outcome.
  std::optional<MetaRun> run_with_ranks(Trial trial, size_t count) const {
    constexpr std::array<int64_t, 5> kRanks = {2, 3, 4, 1, 5};
    constexpr size_t kMaxOperands = 3;
    std::optional<MetaRun> found;
    for (auto rank = kRanks.begin(); rank != kRanks.end() && !found; ++rank) {
      found = run_with(trial, std::vector<int64_t>(count, *rank));
    }
    if (!found || has_one_dtype()) {
      return found;
    }
    if (count > kMaxOperands) {
      return std::nullopt;
    }
    for (size_t scalars = 1; scalars < size_t{1} << count; ++scalars) {
      for (const int64_t rank : kRanks) {
        std::vector<int64_t> ranks(count, rank);
        for (size_t i = 0; i < count; ++i) {
          ranks[i] = (scalars >> i & 1) != 0 ? 0 : rank;
        }
        if (const auto other = run_with(trial, ranks)) {
          if (!have_equal_dtypes(other->results, found->results)) {
            return std::nullopt;
          }
          break;
        }
      }
    }
    return found;
  }

  bool has_one_dtype() const {
    return std::ranges::all_of(tensors_, [this](const TensorFacts* tensor) { return tensor->dtype == tensors_[0]->dtype; });
  }

  static bool have_equal_dtypes(const std::vector<c10::IValue>& a, const std::vector<c10::IValue>& b) {
    const auto are_equal = [](const c10::IValue& left, const c10::IValue& right) {
      return !left.isTensor() || !right.isTensor() || !left.toTensor().defined() || !right.toTensor().defined() ||
             left.toTensor().scalar_type() == right.toTensor().scalar_type();
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), are_equal);
  }

  // `ranks`: of the tensors whose ranks are not known, in their order.
  std::optional<MetaRun> run_with(Trial trial, std::vector<int64_t> ranks) const {
    const bool guesses = !ranks.empty();
    MetaOperands meta(arithmetic_, trial.device, std::move(ranks), trial.has_equal_sizes);
    std::vector<c10::IValue> stack;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const c10::TypePtr& type = schema_.arguments()[i].type();
      const bool is_device = type->isSubtypeOf(*c10::OptionalType::create(c10::DeviceObjType::get()));
      const bool makes_elsewhere =
          is_device &&
          (tensors_.empty() || (operands_[i].as_constant() != nullptr && operands_[i].as_constant()->isDevice()));
      // The only integer that dtypes depend on is one that denotes a dtype.
      if (schema_.arguments()[i].name().ends_with("dtype") && operands_[i].as_constant() == nullptr &&
          !operands_[i].as_known_integer()) {
        return std::nullopt;
      }
      auto operand = makes_elsewhere ? std::optional(c10::IValue(c10::Device(at::kMeta)))
                                     : meta.make(operands_[i], *node_.input(i)->type());
      if (!operand) {
        return std::nullopt;
      }
      stack.push_back(std::move(*operand));
    }
    if (copies_by_reading_no_dtype(node_.op(), stack) || has_unknown_dtype(node_.op(), stack)) {
      return std::nullopt;
    }
    const at::NoGradGuard no_grad;
    const CompiledMetaKernels compiled;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    try {
      node_.op().registered->getOperation()(stack);
    } catch (const std::exception&) {
      return std::nullopt;  // it has no meta kernel, reads data, or would raise in a run, too
    }
    if (stack.size() != node_.outputs().size()) {
      return std::nullopt;
    }
    const ResultRule& rule = node_.op().result;
    const bool has_no_tensors = tensors_.empty() && rule.sizes_by_structure && meta.lists_are_exact();
    // Where to cut a view of dimensions, numbers say.
    const bool ranks_are_exact = !guesses && !rule.rank_depends_on_sizes &&
                                 (trial.device == at::kMeta || rule.runs_on_empty) &&
                                 (makes_views() ? meta.numbers_are_exact() : meta.booleans_are_exact());
    return MetaRun{.results = std::move(stack),
                   .sizes_are_exact = meta.sizes_are_exact() || has_no_tensors,
                   .strides_are_exact = meta.strides_are_exact() || has_no_tensors,
                   .ranks_are_exact = ranks_are_exact};
  }

  bool makes_views() const {
    return std::ranges::any_of(schema_.returns(),
                               [](const c10::Argument& result) { return result.alias_info() != nullptr; });
  }

  const Node& node_;
  const c10::FunctionSchema& schema_;
  const AbstractValues& operands_;
  c10::ArrayRef<const TensorFacts*> tensors_;
  SizeArithmetic& arithmetic_;
};

}  // namespace

std::optional<MetaRun> run_on_meta(const Node& node, const AbstractValues& operands,
                                   c10::ArrayRef<const TensorFacts*> tensors, SizeArithmetic& arithmetic) {
  return MetaRunner(node, operands, tensors, arithmetic).run();
}

std::optional<c10::Device> common_device_of(c10::ArrayRef<const TensorFacts*> tensors) {
  std::optional<c10::Device> device;
  for (const TensorFacts* facts : tensors) {
    if (!facts->device || (device && *device != *facts->device)) {
      return std::nullopt;
    }
    device = facts->device;
  }
  return device;
}

bool are_strided(c10::ArrayRef<const TensorFacts*> tensors) {
  return std::ranges::all_of(tensors, [](const TensorFacts* tensor) { return tensor->layout == c10::kStrided; });
}

}  // namespace sconce
