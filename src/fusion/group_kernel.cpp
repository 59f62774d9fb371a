#include "fusion/group_kernel.h"

#include "fusion/group/group_shapes.h"
#include "fusion/kernel_program_writer.h"
#include "fusion/program/reductions.h"
#include "fusion/program/written_memory.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// Where a run finds the first element of an operand.
struct FirstElement {
  size_t position;  // among the arguments
  int64_t offset;   // in bytes
};

// A number that each run gives, and the dtype that it must fit.
struct BoundNumber {
  size_t position;  // among the arguments
  c10::ScalarType dtype;
};

// The kernel of all outputs of one shape.
struct Nest {
  RowSpace space;
  c10::DimVector strides = {};  // of the outputs
  std::vector<NestOperand> operands;
  std::vector<size_t> numbers;  // positions among the arguments
  std::vector<size_t> outputs;  // positions among the group's results, and the writes after them
  KernelProgram program;
  Iteration iteration;  // until `code` takes it
  int64_t elements = 0;
  std::vector<FirstElement> first;
  std::unique_ptr<NestCode> code;
};

class GroupKernel final : public PreparedKernel {
 public:
  GroupKernel(const NodeGroup& group, const KernelBackend& backend)
      : group_(group), backend_(backend), kinds_(GroupShapes::kinds_of(group)) {}

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const auto shapes = backend_.has_kernels() ? GroupShapes::of(group_, kinds_, arguments) : std::nullopt;
    why_not_ = NotPrepared::kOperandForm;
    if (!shapes) {
      return false;
    }
    nests_ = nests_of(*shapes);
    memory_ = WrittenMemory(group_, arguments);
    types_ = types_of(arguments);
    bound_.clear();
    const bool are_made = std::ranges::all_of(nests_, [&](Nest& nest) {
      return write_program(nest, *shapes, arguments) && plan_loops(nest, *shapes, arguments) && find_code(nest) &&
             finish(nest, *shapes, arguments, results);
    });
    return are_made && order_nests();
  }

  // Programs depend on dtypes, ranks and which dimensions are broadcast. Loops depend on sizes and strides.
  bool prepare_again(const KernelArguments& arguments, KernelResults results) override {
    const auto shapes =
        types_ == types_of(arguments) && is_of_default_dtype() ? GroupShapes::of(group_, kinds_, arguments) : std::nullopt;
    if (!shapes) {
      return false;
    }
    const std::vector<Nest> now = nests_of(*shapes);
    for (size_t i = 0; i < nests_.size(); ++i) {
      if (now.size() != nests_.size() || now[i].outputs != nests_[i].outputs ||
          now[i].space.reduced_dims != nests_[i].space.reduced_dims) {
        return false;
      }
    }
    memory_ = WrittenMemory(group_, arguments);
    for (size_t i = 0; i < nests_.size(); ++i) {
      Nest& nest = nests_[i];
      const std::vector<KernelInput> inputs = nest.program.inputs;
      const LoopOrder order = nest.program.order;
      nest.space = now[i].space;
      nest.strides = now[i].strides;
      if (!plan_loops(nest, *shapes, arguments) || nest.program.inputs != inputs || nest.program.order != order ||
          !finish(nest, *shapes, arguments, results)) {
        return false;
      }
    }
    return true;
  }

  bool is_flat() const override { return is_flat_; }
  void set_elements(int64_t elements) override {
    if (Nest& nest = nests_.front(); nest.elements != elements) {
      nest.elements = elements;
      nest.code->set_elements(elements);
      memory_.set_elements(static_cast<size_t>(elements));
    }
  }

  bool can_run(const KernelArguments& arguments) const override {
    const auto all_are = [&](const auto& is_ready) { return std::ranges::all_of(nests_, is_ready); };
    is_compiled_ = is_compiled_ || all_are([](const Nest& nest) { return nest.code->is_compiled(); });
    // A later run of a flat kernel may have elements where this one has none.
    const bool is_ready =
        is_compiled_ || all_are([](const Nest& nest) { return nest.elements == 0 || nest.code->is_compiled(); });
    return is_ready && is_of_default_dtype() && !memory_.is_shared(arguments) &&
           (!asks_for_addresses_ || serve_addresses(arguments)) &&
           std::ranges::all_of(
               bound_, [&](const BoundNumber& bound) { return fits_dtype(arguments.value(bound.position), bound.dtype); });
  }

  NotPrepared why_not() const override {
    const bool has_no_code =
        std::ranges::any_of(nests_, [](const Nest& nest) { return nest.code && !nest.code->refusal().empty(); });
    return has_no_code ? NotPrepared::kNoCode : why_not_;
  }

  bool is_being_compiled() const override {
    return std::ranges::any_of(nests_, [](const Nest& nest) {
      return nest.elements != 0 && !nest.code->is_compiled() && nest.code->refusal().empty();
    });
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    for (const size_t i : order_) {
      nests_[i].code->run(call_of(nests_[i], arguments, results));
    }
  }
  bool takes_rows(size_t argument, int64_t rows) const override {
    return nests_.size() == 1 && group_.writes.empty() && is_read_in_rows(nests_.front(), argument, rows);
  }
  void begin_rows(const KernelArguments& arguments, KernelResults results) const override {
    nests_.front().code->begin_rows(call_of(nests_.front(), arguments, results));
  }
  void run_rows(const KernelArguments& arguments, KernelResults results, int64_t rows, int64_t first,
                int64_t last) const override {
    nests_.front().code->run_rows(call_of(nests_.front(), arguments, results), rows, first, last);
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

  size_t output_count() const { return group_.results.size() + group_.writes.size(); }
  const Value& output_value(size_t output) const {
    return is_result(output) ? *group_.results[output] : *write_of(output).value;
  }
  bool is_result(size_t output) const { return output < group_.results.size(); }
  const NodeGroup::Write& write_of(size_t output) const { return group_.writes[output - group_.results.size()]; }

  // Distributes the outputs among nests. First those of reductions: a result without one may have the sizes of what is
  // reduced.
  std::vector<Nest> nests_of(const GroupShapes& shapes) const {
    std::vector<Nest> nests;
    for (const bool has_reductions : {true, false}) {
      for (size_t i = 0; i < output_count(); ++i) {
        const RowSpace space = shapes.space_of(output_value(i));
        if (space.reduced_dims.any() != has_reductions) {
          continue;
        }
        const c10::DimVector strides = shapes.written_strides(output_value(i));
        const auto found = std::ranges::find_if(nests, [&](const Nest& nest) {
          return (nest.space == space || (!has_reductions && nest.space.sizes == space.sizes)) && nest.strides == strides;
        });
        Nest& nest = found != nests.end() ? *found : nests.emplace_back(Nest{.space = space, .strides = strides});
        nest.outputs.push_back(i);
      }
    }
    return nests;
  }

  bool write_program(Nest& nest, const GroupShapes& shapes, const KernelArguments& arguments) {
    KernelProgramWriter writer(group_, arguments, shapes);
    for (const size_t output : nest.outputs) {
      const auto element = writer.write(output_value(output));
      if (!element) {
        return false;
      }
      const bool is_of_row = shapes.is_of_row(output_value(output));
      nest.program.outputs.push_back({element->type, element->id, is_of_row ? Access::kOne : Access::kElements});
    }
    if (arguments.is_exact() && writer.builder().may_differ()) {
      why_not_ = NotPrepared::kDiffers;
      return false;
    }
    if (!backend_.accepts(writer.builder())) {
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
    for (const auto& [index, dtype] : writer.builder().bound_numbers()) {
      bound_.push_back({nest.numbers[index], dtype});
    }
    nest.program.code = writer.builder().take();
    return true;
  }

  // Plans the loops, and how the program steps through its inputs.
  bool plan_loops(Nest& nest, const GroupShapes& shapes, const KernelArguments& arguments) {
    std::vector<IterationOperand> tensors;
    nest.first.clear();
    for (const NestOperand& operand : nest.operands) {
      auto view = shapes.viewed(*group_.operands[operand.position], operand.views);
      if (!view) {
        return false;
      }
      const auto bytes = static_cast<int64_t>(arguments.tensor(operand.position).element_size());
      nest.first.push_back({operand.position, view->offset * bytes});
      tensors.push_back({std::move(view->form), bytes});
    }
    std::vector<IterationOutput> outputs;
    for (const KernelOutput& output : nest.program.outputs) {
      outputs.push_back({c10::elementSize(output.type), output.access == Access::kOne});
    }
    auto iteration = plan_iteration({nest.space.sizes, nest.strides}, nest.space.reduced_dims, tensors, outputs);
    if (!iteration || (nest.space.reduced_dims.any() && iteration->elements() == 0)) {
      return false;
    }
    // A reduction passes over its rows several times. Outputs are written element after element.
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!is_result(nest.outputs[k]) && (nest.space.reduced_dims.any() || iteration->strides[tensors.size() + k].back() !=
                                                                               static_cast<int64_t>(outputs[k].bytes))) {
        return false;
      }
    }
    if (const auto why_not = backend_.why_not(nest.program, *iteration, nest.space.reduced_dims.any())) {
      why_not_ = *why_not;
      return false;
    }
    nest.program.order = iteration->order;
    nest.program.inputs.clear();
    for (size_t k = 0; k < tensors.size(); ++k) {
      const std::vector<int64_t>& strides = iteration->strides[k];
      const int64_t stride = iteration->order == LoopOrder::kColumns ? strides[strides.size() - 2] : strides.back();
      const auto access = stride == tensors[k].bytes ? Access::kElements : stride == 0 ? Access::kOne : Access::kStrided;
      const bool is_of_row =
          iteration->order != LoopOrder::kRows && strides.back() == 0 && iteration->segment_strides[k] == 0;
      nest.program.inputs.push_back({arguments.tensor(nest.operands[k].position).scalar_type(), access, is_of_row});
    }
    nest.iteration = std::move(*iteration);
    return true;
  }

  // Orders the nests such that each runs before those that overwrite what it reads. Returns whether there is such an order.
  bool order_nests() {
    const auto overwrites = [&](const Nest& nest, const Nest& reader) {
      return std::ranges::any_of(nest.outputs, [&](size_t output) {
        return !is_result(output) && std::ranges::any_of(reader.operands, [&](const NestOperand& read) {
          return read.position == write_of(output).operand;
        });
      });
    };
    order_.clear();
    std::vector<size_t> left(nests_.size());
    std::iota(left.begin(), left.end(), size_t{0});
    while (!left.empty()) {
      const auto next = std::ranges::find_if(left, [&](size_t i) {
        return std::ranges::none_of(left, [&](size_t other) { return other != i && overwrites(nests_[i], nests_[other]); });
      });
      if (next == left.end()) {
        return false;
      }
      order_.push_back(*next);
      left.erase(next);
    }
    return true;
  }

  bool find_code(Nest& nest) const {
    nest.code = backend_.make(nest.program, nest.space.reduced_dims.any(), !group_.writes.empty(), names_of(group_));
    return nest.code->refusal().empty();
  }

  bool finish(Nest& nest, const GroupShapes& shapes, const KernelArguments& arguments, KernelResults results) {
    is_compiled_ = false;
    nest.elements = nest.iteration.elements();
    nest.code->set_loops(std::move(nest.iteration));
    asks_for_addresses_ = asks_for_addresses_ || nest.code->asks_for_addresses();
    is_flat_ = nests_.size() == 1 && nest.code->is_flat() && nest.elements > 1 && are_flat(group_, arguments) &&
               std::ranges::all_of(nest.operands, [](const auto& read) { return read.views.empty(); }) &&
               backend_.accepts_any_length(nest.program);
    for (size_t i = 0; i < nest.outputs.size(); ++i) {
      if (is_result(nest.outputs[i])) {
        const Value& result = output_value(nest.outputs[i]);
        results[nest.outputs[i]].place(shapes.sizes_of(result), shapes.strides_of(result), nest.program.outputs[i].type,
                                       backend_.device());
      }
    }
    return nest.code->refusal().empty();  // a back end may need other code for these loops
  }

  static bool is_read_in_rows(const Nest& nest, size_t argument, int64_t rows) {
    bool is_read = false;
    for (size_t k = 0; k < nest.operands.size(); ++k) {
      const bool is_argument = nest.operands[k].position == argument;
      if (is_argument && (!nest.operands[k].views.empty() || !nest.code->has_rows(k, rows))) {
        return false;
      }
      is_read = is_read || is_argument;
    }
    return is_read;
  }

  KernelCallArguments call_of(const Nest& nest, const KernelArguments& arguments, KernelResults results) const {
    KernelCallArguments call;
    const size_t operands = nest.first.size();
    call.first.resize_for_overwrite(operands + nest.outputs.size());
    for (size_t k = 0; k < operands; ++k) {
      call.first[k] = first_of(nest.first[k], arguments);
    }
    for (size_t k = 0; k < nest.outputs.size(); ++k) {
      const size_t output = nest.outputs[k];
      call.first[operands + k] = is_result(output) ? results[output].data : arguments.data(write_of(output).operand);
    }
    for (const size_t number : nest.numbers) {
      const c10::IValue& value = arguments.value(number);
      call.numbers.push_back(value.isDouble() ? std::bit_cast<int64_t>(value.toDouble())
                             : value.isBool() ? static_cast<int64_t>(value.toBool())
                                              : value.toInt());
      if (arguments.has_number_memory()) [[unlikely]] {
        call.number_memory.push_back(arguments.number_memory(number));
      }
    }
    return call;
  }

  static void* first_of(const FirstElement& first, const KernelArguments& arguments) {
    return static_cast<char*>(arguments.data(first.position)) + first.offset;
  }

  // Returns whether there is code for operands at these addresses.
  bool serve_addresses(const KernelArguments& arguments) const {
    return std::ranges::all_of(nests_, [&](const Nest& nest) {
      std::vector<void*> inputs;
      for (size_t k = 0; nest.code->asks_for_addresses() && k < nest.first.size(); ++k) {
        inputs.push_back(first_of(nest.first[k], arguments));
      }
      return inputs.empty() || nest.code->serves(inputs);
    });
  }

  const NodeGroup& group_;
  const KernelBackend& backend_;
  const std::vector<GroupShapes::NodeKind> kinds_;
  std::vector<Nest> nests_;
  std::vector<size_t> order_;  // in which nests run
  mutable WrittenMemory memory_;
  std::vector<Type> types_;
  std::vector<BoundNumber> bound_;
  bool is_flat_ = false;
  NotPrepared why_not_ = NotPrepared::kOperandForm;  // the operands of the last preparation
  mutable bool is_compiled_ = false;                 // until the next preparation
  bool asks_for_addresses_ = false;
  // For which programs were written; undefined if none depends on it.
  c10::ScalarType default_dtype_ = c10::ScalarType::Undefined;
};

}  // namespace

KernelPtr make_group_kernel(const NodeGroup& group, const KernelBackend& backend) {
  return std::make_unique<GroupKernel>(group, backend);
}

}  // namespace sconce
