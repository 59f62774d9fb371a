#include "fusion/group_kernel.h"

#include "base/flat_map.h"
#include "fusion/iteration.h"
#include "fusion/kernel_cache.h"
#include "fusion/operators.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace sconce {
namespace {

// The kernel of all results of one shape.
struct Nest {
  std::vector<size_t> operands;  // positions among the arguments; tensors
  std::vector<size_t> numbers;   // the same; numbers
  std::vector<size_t> results;   // positions among the results
  Iteration iteration;
  std::shared_ptr<const CachedKernel> code;
  size_t cost = 0;  // instructions per element
};

// Writes the program of a nest.
class NestWriter {
 public:
  NestWriter(const NodeGroup& group, const KernelArguments& arguments) : arguments_(arguments) {
    for (size_t i = 0; i < group.operands.size(); ++i) {
      position_[group.operands[i]] = i;
    }
  }

  // Returns the element of the value; nothing if no kernel computes it.
  std::optional<Element> write(const Value& value) {
    const auto argument = argument_of(value);
    return argument ? std::optional(argument->value) : std::nullopt;
  }

  ProgramBuilder& builder() { return builder_; }
  const std::vector<size_t>& operands() const { return operands_; }
  const std::vector<size_t>& numbers() const { return numbers_; }

 private:
  std::optional<ElementArgument> argument_of(const Value& value) {
    if (const auto found = known_.find(&value); found != known_.end()) {
      return found->second;
    }
    std::optional<ElementArgument> argument;
    if (const auto position = position_.find(&value); position != position_.end()) {
      argument = operand(position->second);
    } else if (value.node()->opcode() == Opcode::kConstant) {
      argument = ElementArgument{.constant = *value.constant()};
    } else {
      argument = computed(*value.node());
    }
    if (argument) {
      known_[&value] = *argument;
    }
    return argument;
  }

  std::optional<ElementArgument> operand(size_t position) {
    if (!arguments_.is_tensor(position)) {
      const c10::IValue& number = arguments_.value(position);
      const c10::ScalarType type = number.isDouble() ? at::kDouble : number.isBool() ? at::kBool : at::kLong;
      numbers_.push_back(position);
      return ElementArgument{ElementArgument::Kind::kNumber,
                             builder_.number(static_cast<uint32_t>(numbers_.size() - 1), type)};
    }
    const at::Tensor& tensor = arguments_.tensor(position);
    if (!is_kernel_type(tensor.scalar_type())) {
      return std::nullopt;
    }
    operands_.push_back(position);
    return ElementArgument{.kind = ElementArgument::Kind::kTensor,
                           .value = builder_.load(static_cast<uint32_t>(operands_.size() - 1), tensor.scalar_type()),
                           .is_zero_dim = tensor.dim() == 0};
  }

  std::optional<ElementArgument> computed(const Node& node) {
    std::vector<ElementArgument> operands;
    bool is_zero_dim = true;
    for (const Value* input : node.inputs()) {
      auto operand = argument_of(*input);
      if (!operand) {
        return std::nullopt;
      }
      is_zero_dim = is_zero_dim && (operand->kind != ElementArgument::Kind::kTensor || operand->is_zero_dim);
      operands.push_back(std::move(*operand));
    }
    const auto result = write_operator(builder_, node.op(), operands);
    if (!result) {
      return std::nullopt;
    }
    return ElementArgument{.kind = ElementArgument::Kind::kTensor, .value = *result, .is_zero_dim = is_zero_dim};
  }

  const KernelArguments& arguments_;
  FlatMap<const Value*, size_t> position_;
  FlatMap<const Value*, ElementArgument> known_;
  ProgramBuilder builder_;
  std::vector<size_t> operands_;
  std::vector<size_t> numbers_;
};

class GroupKernel final : public PreparedKernel {
 public:
  GroupKernel(const NodeGroup& group, bool is_blocking) : group_(group), is_blocking_(is_blocking) {}

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (kernel_lanes() == 0 || !find_shapes(arguments)) {
      return false;
    }
    for (size_t i = 0; i < group_.results.size(); ++i) {
      const c10::DimVector& shape = shapes_.at(group_.results[i]);
      const auto nest = std::find_if(nests_.begin(), nests_.end(), [&](const Nest& each) {
        return shapes_.at(group_.results[each.results.front()]) == shape;
      });
      if (nest == nests_.end()) {
        nests_.emplace_back();
        nests_.back().results.push_back(i);
      } else {
        nest->results.push_back(i);
      }
    }
    for (Nest& nest : nests_) {
      if (!prepare_nest(nest, arguments, results)) {
        return false;
      }
    }
    return true;
  }

  bool can_run() const override {
    return std::all_of(nests_.begin(), nests_.end(),
                       [](const Nest& nest) { return nest.iteration.elements() == 0 || nest.code->function() != nullptr; });
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    for (const Nest& nest : nests_) {
      run_nest(nest, arguments, results);
    }
  }

 private:
  // Finds the sizes of all values. Returns false if operands do not broadcast: the operator itself reports it.
  bool find_shapes(const KernelArguments& arguments) {
    for (size_t i = 0; i < group_.operands.size(); ++i) {
      if (arguments.is_tensor(i)) {
        const c10::IntArrayRef sizes = arguments.tensor(i).sizes();
        shapes_[group_.operands[i]] = c10::DimVector(sizes.begin(), sizes.end());
      }
    }
    for (const Node* node : group_.nodes) {
      c10::DimVector sizes;
      for (const Value* input : node->inputs()) {
        if (const auto known = shapes_.find(input); known != shapes_.end()) {
          const auto together = broadcast_sizes(sizes, known->second);
          if (!together) {
            return false;
          }
          sizes = *together;
        }
      }
      shapes_[node->output()] = sizes;
    }
    return true;
  }

  bool prepare_nest(Nest& nest, const KernelArguments& arguments, KernelResults results) {
    NestWriter writer(group_, arguments);
    KernelProgram program;
    std::vector<size_t> output_bytes;
    for (const size_t result : nest.results) {
      const auto element = writer.write(*group_.results[result]);
      if (!element) {
        return false;
      }
      program.outputs.push_back({element->type, element->id});
      output_bytes.push_back(c10::elementSize(element->type));
    }
    if (arguments.is_exact() && writer.builder().uses_library()) {
      return false;
    }
    nest.operands = writer.operands();
    nest.numbers = writer.numbers();
    std::vector<const at::Tensor*> tensors;
    for (const size_t operand : nest.operands) {
      tensors.push_back(&arguments.tensor(operand));
    }
    const c10::DimVector& shape = shapes_.at(group_.results[nest.results.front()]);
    auto iteration = plan_iteration(shape, tensors, output_bytes);
    if (!iteration) {
      return false;
    }
    nest.iteration = std::move(*iteration);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const int64_t stride = nest.iteration.strides[k].back();
      const auto bytes = static_cast<int64_t>(tensors[k]->element_size());
      program.inputs.push_back({tensors[k]->scalar_type(), stride == bytes ? Access::kElements
                                                           : stride == 0   ? Access::kOne
                                                                           : Access::kStrided});
    }
    for (const size_t number : nest.numbers) {
      const c10::IValue& value = arguments.value(number);
      program.numbers.push_back(value.isDouble() ? at::kDouble : value.isBool() ? at::kBool : at::kLong);
    }
    program.code = writer.builder().take();
    nest.cost = program.code.size();
    for (size_t i = 0; i < nest.results.size(); ++i) {
      results[nest.results[i]].place(shape, nest.iteration.output_strides, program.outputs[i].type);
    }
    nest.code = KernelCache::instance().find(std::move(program), is_blocking_);
    return nest.code->refusal().empty();
  }

  static void run_nest(const Nest& nest, const KernelArguments& arguments, KernelResults results) {
    const Iteration& loops = nest.iteration;
    const size_t count = loops.strides.size();
    const size_t rank = loops.sizes.size();
    c10::SmallVector<void*, 16> first;
    for (const size_t operand : nest.operands) {
      first.push_back(arguments.data(operand));
    }
    for (const size_t result : nest.results) {
      first.push_back(results[result].data);
    }
    c10::SmallVector<int64_t, 32> steps(2 * count);
    for (size_t k = 0; k < count; ++k) {
      steps[k] = loops.strides[k][rank - 2];
      steps[count + k] = loops.strides[k][rank - 1];
    }
    c10::SmallVector<int64_t, 8> numbers;
    for (const size_t number : nest.numbers) {
      const c10::IValue& value = arguments.value(number);
      numbers.push_back(value.isDouble() ? std::bit_cast<int64_t>(value.toDouble())
                        : value.isBool() ? static_cast<int64_t>(value.toBool())
                                         : value.toInt());
    }
    const int64_t elements = loops.elements();
    if (elements == 0) {
      return;
    }
    const KernelFunction function = nest.code->function();
    const int64_t grain = std::max<int64_t>(1, kGrain / static_cast<int64_t>(nest.cost));
    if (rank == 2 && elements < grain) {
      function(first.data(), steps.data(), numbers.data(), loops.sizes[0], loops.sizes[1]);
      return;
    }
    // Threads take parts of the longest of the two inner dimensions, or of the outer ones together.
    const auto run_part = [&](size_t dim, int64_t begin, int64_t end) {
      run_loops(loops, function, first, steps, numbers, dim, begin, end);
    };
    const size_t split = static_cast<size_t>(std::max_element(loops.sizes.begin(), loops.sizes.end()) - loops.sizes.begin());
    const int64_t each = elements / loops.sizes[split];
    at::parallel_for(0, loops.sizes[split], std::max<int64_t>(1, grain / std::max<int64_t>(each, 1)),
                     [&](int64_t begin, int64_t end) { run_part(split, begin, end); });
  }

  // Runs all loops, but the dimension `split` only from `begin` to `end`.
  static void run_loops(const Iteration& loops, KernelFunction function, const c10::SmallVector<void*, 16>& first,
                        const c10::SmallVector<int64_t, 32>& steps, const c10::SmallVector<int64_t, 8>& numbers,
                        size_t split, int64_t begin, int64_t end) {
    const size_t rank = loops.sizes.size();
    std::vector<int64_t> sizes = loops.sizes;
    sizes[split] = end - begin;
    c10::SmallVector<void*, 16> at = first;
    const auto advance = [&](size_t dim, int64_t by) {
      for (size_t k = 0; k < at.size(); ++k) {
        at[k] = static_cast<char*>(at[k]) + loops.strides[k][dim] * by;
      }
    };
    advance(split, begin);
    std::vector<int64_t> index(rank - 2, 0);
    while (true) {
      function(at.data(), steps.data(), numbers.data(), sizes[rank - 2], sizes[rank - 1]);
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

  const NodeGroup& group_;
  const bool is_blocking_;
  FlatMap<const Value*, c10::DimVector> shapes_;
  std::vector<Nest> nests_;
};

class KernelsOfGroups final : public GroupCompiler {
 public:
  explicit KernelsOfGroups(bool is_blocking) : is_blocking_(is_blocking) {}
  bool can_compute(const Op& op) const override { return has_element_rule(op); }
  KernelPtr make_kernel(const NodeGroup& group) const override { return std::make_unique<GroupKernel>(group, is_blocking_); }

 private:
  const bool is_blocking_;
};

}  // namespace

const GroupCompiler& background_kernels() {
  static const KernelsOfGroups compiler(/*is_blocking=*/false);
  return compiler;
}

const GroupCompiler& blocking_kernels() {
  static const KernelsOfGroups compiler(/*is_blocking=*/true);
  return compiler;
}

}  // namespace sconce
