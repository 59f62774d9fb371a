#include "fusion/group_kernel.h"

#include "analysis/effects.h"
#include "fusion/folds.h"
#include "fusion/group_shapes.h"
#include "fusion/iteration.h"
#include "fusion/kernel_cache.h"
#include "fusion/kernel_width.h"
#include "fusion/known_dtypes.h"
#include "fusion/nest_writer.h"
#include "fusion/operators.h"
#include "fusion/schedule.h"

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// The kernel of all results of one shape.
struct Nest {
  RowSpace space;
  c10::DimVector strides = {};  // of the results
  std::vector<NestOperand> operands;
  std::vector<int64_t> offsets;  // of the operands' first elements, in bytes
  std::vector<size_t> numbers;   // positions among the arguments
  std::vector<size_t> results;   // positions among the results
  KernelProgram program;
  std::vector<Access> accesses;  // of the operands
  Iteration iteration;
  std::shared_ptr<const CachedKernel> code;
  size_t cost = 0;              // instructions per element
  std::vector<size_t> buffers;  // bytes per element of a row; 0: an output is the buffer
};

class GroupKernel final : public PreparedKernel {
 public:
  GroupKernel(const NodeGroup& group, size_t lanes, bool is_blocking, bool is_selective)
      : group_(group), lanes_(lanes), is_blocking_(is_blocking), is_selective_(is_selective) {}

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const auto shapes = lanes_ == 0 ? std::nullopt : GroupShapes::of(group_, arguments);
    if (!shapes) {
      return false;
    }
    nests_ = nests_of(*shapes);
    types_ = types_of(arguments);
    return std::all_of(nests_.begin(), nests_.end(), [&](Nest& nest) {
      return write_program(nest, *shapes, arguments) && plan_loops(nest, *shapes, arguments) && find_code(nest, arguments) &&
             place_results(nest, *shapes, results);
    });
  }

  // Programs depend on dtypes, ranks and which dimensions are broadcast. Loops depend on sizes and strides.
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    const auto shapes =
        types_ == types_of(arguments) && is_of_default_dtype() ? GroupShapes::of(group_, arguments) : std::nullopt;
    if (!shapes) {
      return false;
    }
    const std::vector<Nest> now = nests_of(*shapes);
    for (size_t i = 0; i < nests_.size(); ++i) {
      if (now.size() != nests_.size() || now[i].results != nests_[i].results ||
          now[i].space.folded_dims != nests_[i].space.folded_dims) {
        return false;
      }
    }
    for (size_t i = 0; i < nests_.size(); ++i) {
      Nest& nest = nests_[i];
      const std::vector<Access> before = nest.accesses;
      nest.space = now[i].space;
      nest.strides = now[i].strides;
      if (!plan_loops(nest, *shapes, arguments) || nest.accesses != before || !place_results(nest, *shapes, results)) {
        return false;
      }
    }
    return true;
  }

  bool can_run() const override {
    return is_of_default_dtype() && std::all_of(nests_.begin(), nests_.end(), [](const Nest& nest) {
             return nest.iteration.elements() == 0 || nest.code->function() != nullptr;
           });
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    for (const Nest& nest : nests_) {
      run_nest(nest, arguments, results);
    }
  }

 private:
  bool is_of_default_dtype() const {
    return default_dtype_ == c10::ScalarType::Undefined || default_dtype_ == c10::get_default_dtype_as_scalartype();
  }

  // What programs depend on, by operand.
  struct Type {
    c10::ScalarType dtype;
    int64_t dims;
    bool is_dense;
    bool operator==(const Type&) const = default;
  };
  std::vector<Type> types_of(const KernelArguments& arguments) const {
    std::vector<Type> types;
    for (size_t i = 0; i < group_.operands.size(); ++i) {
      types.push_back(arguments.is_tensor(i) ? Type{arguments.tensor(i).scalar_type(), arguments.tensor(i).dim(),
                                                    arguments.tensor(i).is_non_overlapping_and_dense()}
                                             : Type{type_of_number(arguments.value(i)), -1, true});
    }
    return types;
  }

  // Distributes the results among nests. First those of folds: a result without one may have the sizes of what is folded.
  std::vector<Nest> nests_of(const GroupShapes& shapes) const {
    std::vector<Nest> nests;
    for (const bool has_folds : {true, false}) {
      for (size_t i = 0; i < group_.results.size(); ++i) {
        const RowSpace space = shapes.space_of(*group_.results[i]);
        if ((space.folded_dims != 0) != has_folds) {
          continue;
        }
        const c10::DimVector strides =
            has_folds ? contiguous_form(space.sizes).strides : shapes.strides_of(*group_.results[i]);
        const auto found = std::find_if(nests.begin(), nests.end(), [&](const Nest& nest) {
          return (nest.space == space || (!has_folds && nest.space.sizes == space.sizes)) && nest.strides == strides;
        });
        Nest& nest = found != nests.end() ? *found : nests.emplace_back(Nest{.space = space, .strides = strides});
        nest.results.push_back(i);
      }
    }
    return nests;
  }

  bool write_program(Nest& nest, const GroupShapes& shapes, const KernelArguments& arguments) {
    NestWriter writer(group_, arguments, shapes);
    for (const size_t result : nest.results) {
      const auto element = writer.write(*group_.results[result]);
      if (!element) {
        return false;
      }
      const bool is_of_row = shapes.is_of_row(*group_.results[result]);
      nest.program.outputs.push_back({element->type, element->id, is_of_row ? Access::kOne : Access::kElements});
    }
    if (arguments.is_exact() && writer.builder().may_round()) {
      return false;
    }
    if (lanes_ == kGenericLanes && writer.builder().calls_functions()) {
      return false;
    }
    if (writer.builder().takes_default_dtype()) {
      default_dtype_ = c10::get_default_dtype_as_scalartype();
    }
    nest.operands = writer.operands();
    nest.numbers = writer.numbers();
    for (const size_t number : nest.numbers) {
      nest.program.numbers.push_back(type_of_number(arguments.value(number)));
    }
    nest.program.code = writer.builder().take();
    nest.cost = nest.program.code.size();
    return true;
  }

  bool plan_loops(Nest& nest, const GroupShapes& shapes, const KernelArguments& arguments) const {
    std::vector<IterationOperand> tensors;
    nest.offsets.clear();
    for (const NestOperand& operand : nest.operands) {
      auto view = shapes.viewed(*group_.operands[operand.position], operand.views);
      if (!view) {
        return false;
      }
      const auto bytes = static_cast<int64_t>(arguments.tensor(operand.position).element_size());
      nest.offsets.push_back(view->offset * bytes);
      tensors.push_back({std::move(view->form), bytes});
    }
    std::vector<IterationOutput> outputs;
    for (const KernelOutput& output : nest.program.outputs) {
      outputs.push_back({c10::elementSize(output.type), output.access == Access::kOne});
    }
    auto iteration =
        plan_iteration({nest.space.sizes, nest.strides}, static_cast<size_t>(nest.space.folded_dims), tensors, outputs);
    if (!iteration) {
      return false;
    }
    if (nest.space.folded_dims != 0 && (iteration->elements() == 0 || iteration->sizes.back() > kLongestFoldedRow)) {
      return false;
    }
    if (is_selective_ && is_faster_by_mkl(nest.program) && iteration->elements() > kLongestAlone) {
      return false;
    }
    nest.iteration = std::move(*iteration);
    nest.accesses.clear();
    for (size_t k = 0; k < tensors.size(); ++k) {
      const int64_t stride = nest.iteration.strides[k].back();
      nest.accesses.push_back(stride == tensors[k].bytes ? Access::kElements
                              : stride == 0              ? Access::kOne
                                                         : Access::kStrided);
    }
    return true;
  }

  // LibTorch computes one such function of a long tensor by MKL's vector library.
  static bool is_faster_by_mkl(const KernelProgram& program) {
    const MachineOp last = program.code.back().op;
    return program.code.size() == 2 && is_library_function(last) && last != MachineOp::kSigmoid && last != MachineOp::kErf;
  }

  bool find_code(Nest& nest, const KernelArguments& arguments) const {
    for (size_t k = 0; k < nest.operands.size(); ++k) {
      nest.program.inputs.push_back({arguments.tensor(nest.operands[k].position).scalar_type(), nest.accesses[k]});
    }
    for (const RowBuffer& buffer : schedule_of(nest.program).buffers) {
      nest.buffers.push_back(buffer.output ? 0 : c10::elementSize(buffer.type));
    }
    nest.code = KernelCache::instance().find(nest.program, lanes_, is_blocking_, names_of_nodes());
    return nest.code->refusal().empty();
  }

  // Returns "mul add sigmoid".
  std::string names_of_nodes() const {
    std::string names;
    for (const Node* node : group_.nodes) {
      if (node->opcode() != Opcode::kListUnpack) {
        names += (names.empty() ? "" : " ") + std::string(node->kind().toUnqualString());
      }
    }
    return names;
  }

  bool place_results(const Nest& nest, const GroupShapes& shapes, KernelResults results) const {
    for (size_t i = 0; i < nest.results.size(); ++i) {
      const Value& result = *group_.results[nest.results[i]];
      results[nest.results[i]].place(shapes.sizes_of(result), shapes.strides_of(result), nest.program.outputs[i].type);
    }
    return true;
  }

  static void run_nest(const Nest& nest, const KernelArguments& arguments, KernelResults results) {
    const Iteration& loops = nest.iteration;
    const int64_t elements = loops.elements();
    if (elements == 0) {
      return;
    }
    Call call{.function = nest.code->function()};
    for (size_t k = 0; k < nest.operands.size(); ++k) {
      call.first.push_back(static_cast<char*>(arguments.data(nest.operands[k].position)) + nest.offsets[k]);
    }
    for (const size_t result : nest.results) {
      call.first.push_back(results[result].data);
    }
    const size_t count = loops.strides.size() + nest.buffers.size();
    const size_t rank = loops.sizes.size();
    call.steps.resize(2 * count, 0);
    for (size_t k = 0; k < loops.strides.size(); ++k) {
      call.steps[k] = loops.strides[k][rank - 2];
      call.steps[count + k] = loops.strides[k][rank - 1];
    }
    for (const size_t number : nest.numbers) {
      const c10::IValue& value = arguments.value(number);
      call.numbers.push_back(value.isDouble() ? std::bit_cast<int64_t>(value.toDouble())
                             : value.isBool() ? static_cast<int64_t>(value.toBool())
                                              : value.toInt());
    }
    const int64_t grain = std::max<int64_t>(1, kGrain / static_cast<int64_t>(nest.cost));
    if (elements < grain) {
      run_loops(nest, call, 0, 0, loops.sizes[0]);
      return;
    }
    // Threads take parts of the longest dimension. A row that is folded has to stay whole.
    const auto last = loops.sizes.end() - (nest.space.folded_dims != 0 ? 1 : 0);
    const auto split = static_cast<size_t>(std::max_element(loops.sizes.begin(), last) - loops.sizes.begin());
    const int64_t each = elements / loops.sizes[split];
    at::parallel_for(0, loops.sizes[split], std::max<int64_t>(1, grain / each),
                     [&](int64_t begin, int64_t end) { run_loops(nest, call, split, begin, end); });
  }

  struct Call {
    KernelFunction function;
    c10::SmallVector<void*, 16> first;
    c10::SmallVector<int64_t, 32> steps;
    c10::SmallVector<int64_t, 8> numbers;
  };

  // Runs all loops, but the dimension `split` only from `begin` to `end`.
  static void run_loops(const Nest& nest, const Call& call, size_t split, int64_t begin, int64_t end) {
    const Iteration& loops = nest.iteration;
    const size_t rank = loops.sizes.size();
    c10::SmallVector<int64_t, 8> sizes(loops.sizes.begin(), loops.sizes.end());
    sizes[split] = end - begin;
    c10::SmallVector<void*, 16> at = call.first;
    const auto advance = [&](size_t dim, int64_t by) {
      for (size_t k = 0; k < loops.strides.size(); ++k) {
        at[k] = static_cast<char*>(at[k]) + loops.strides[k][dim] * by;
      }
    };
    if (begin != 0) {
      advance(split, begin);
    }
    const auto words_of = [&](size_t bytes) { return (bytes * static_cast<size_t>(sizes.back()) + 7) / 8; };
    c10::SmallVector<int64_t, 512> buffers;
    buffers.resize_for_overwrite(std::accumulate(nest.buffers.begin(), nest.buffers.end(), size_t{0},
                                                 [&](size_t words, size_t bytes) { return words + words_of(bytes); }));
    int64_t* buffer = buffers.data();
    for (const size_t bytes : nest.buffers) {
      at.push_back(bytes == 0 ? nullptr : buffer);
      buffer += words_of(bytes);
    }
    c10::SmallVector<int64_t, 8> index(rank - 2, 0);
    while (true) {
      call.function(at.data(), call.steps.data(), call.numbers.data(), sizes[rank - 2], sizes[rank - 1]);
      // The next place of the outer dimensions.
      size_t dim = rank - 2;
      while (dim > 0) {
        --dim;
        advance(dim, 1);
        if (++index[dim] < sizes[dim]) {
          break;
        }
        advance(dim, -sizes[dim]);
        index[dim] = 0;
        if (dim == 0) {
          return;
        }
      }
      if (rank == 2) {
        return;
      }
    }
  }

  // The work in instructions below which a second thread does not pay.
  static constexpr int64_t kGrain = 200'000;
  static constexpr int64_t kLongestAlone = 16'384;
  // Lanes sum up independently; beyond this length LibTorch's sums in pairs are more precise.
  static constexpr int64_t kLongestFoldedRow = 65'536;

  const NodeGroup& group_;
  const size_t lanes_;
  const bool is_blocking_;
  const bool is_selective_;  // leaves to the operator what it computes faster
  std::vector<Nest> nests_;
  std::vector<Type> types_;
  // For which programs were written; undefined if none depends on it.
  c10::ScalarType default_dtype_ = c10::ScalarType::Undefined;
};

class KernelsOfGroups final : public GroupCompiler {
 public:
  KernelsOfGroups(size_t lanes, bool is_blocking, bool is_selective)
      : lanes_(lanes), is_blocking_(is_blocking), is_selective_(is_selective) {}
  GroupRole role_of(const Node& node) const override {
    if (is_index_view(node)) {
      return GroupRole::kView;
    }
    const bool has_rule = has_element_rule(node.op()) && (produces_new_tensor(node) || casts_to_other_dtype(node)) &&
                          !is_known_to_be_refused(node);
    return !has_rule ? GroupRole::kNone : may_fold(node.op()) ? GroupRole::kFold : GroupRole::kPointwise;
  }
  KernelPtr make_kernel(const NodeGroup& group) const override {
    return std::make_unique<GroupKernel>(group, lanes_, is_blocking_, is_selective_);
  }

 private:
  const size_t lanes_;
  const bool is_blocking_;
  const bool is_selective_;  // leaves to the operator what it computes faster
};

}  // namespace

const GroupCompiler& background_kernels() {
  static const KernelsOfGroups compiler(kernel_lanes(), /*is_blocking=*/false, /*is_selective=*/true);
  return compiler;
}

const GroupCompiler& blocking_kernels() {
  static const KernelsOfGroups compiler(kernel_lanes(), /*is_blocking=*/true, /*is_selective=*/true);
  return compiler;
}

std::unique_ptr<GroupCompiler> make_blocking_kernels(size_t lanes) {
  return std::make_unique<KernelsOfGroups>(lanes, /*is_blocking=*/true, /*is_selective=*/false);
}

}  // namespace sconce
