#include "base/call_watch.h"
#include "ir/source.h"
#include "ops/libtorch_workarounds.h"
#include "plan/steps/call_step.h"

#include <sconce/script_error.h>

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace sconce {
namespace {

// The registry's implementation takes one argument. Given two, it uses the class's name as the message.
void raise_exception(const Frame& frame) {
  std::optional<std::string> python_class;
  if (frame.stack.size() > 1) {
    python_class = frame.stack[1].toOptional<std::string>();
  }
  throw ScriptError(frame.stack[0].toStringRef(), python_class, {});
}

// aten::warn: each place warns once in a run. LibTorch's interpreter implements it itself.
class WarnStep final : public CallStep {
 public:
  WarnStep(const Node& node, Operands operands)
      : CallStep(node, std::move(operands), {}, false), location_(node.location()) {
    if (const auto* id = node.attribute(c10::Symbol::attr("warn_id"))) {
      id_ = std::get<int64_t>(*id);
    }
  }

  void run(Frame& frame) const override {
    push_operands(frame);
    const std::string message = frame.stack[0].toStringRef();
    frame.stack.clear();
    if (id_) {
      if (std::ranges::find(frame.warned, *id_) != frame.warned.end()) {
        return;
      }
      frame.warned.push_back(*id_);
    }
    CallWatch::note("warns");
    const torch::jit::SourceRange* range = location_ ? location_->range() : nullptr;
    const auto place = range != nullptr && range->source() ? range->file_line_col() : std::nullopt;
    const auto& [file, line, column] = place.value_or(std::make_tuple(std::string("<script>"), size_t{0}, size_t{0}));
    c10::warn(c10::Warning(c10::UserWarning(), {"", file.c_str(), static_cast<uint32_t>(line)}, message, /*verbatim=*/true));
  }

 private:
  std::optional<int64_t> id_;
  SourceLocationPtr location_;
};

// prim::tolist of a tensor, a number of nested lists and the kind of their elements. LibTorch's implementation needs
// its node.
class ToListStep final : public CallStep {
 public:
  ToListStep(const Node& node, Operands operands, Registers results)
      : CallStep(node, std::move(operands), std::move(results), false) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    at::Tensor tensor = frame.stack[0].toTensor();
    const int64_t depth = frame.stack[1].toInt();
    const ElementKind& kind = element_kind(frame.stack[2].toInt());
    TORCH_CHECK(tensor.scalar_type() == kind.dtype || (kind.dtype == at::kFloat && tensor.is_floating_point()) ||
                    (kind.dtype == at::kComplexFloat && tensor.is_complex()),
                "Output annotation element type and runtime tensor element type must match for tolist(): ", kind.dtype,
                " vs ", tensor.scalar_type());
    TORCH_CHECK(depth == tensor.dim(),
                "Output annotation list dimension and runtime tensor dimension must match for tolist()");
    // Converts narrow numbers one by one, because `to` is a whole call.
    Read read = kind.read;
    if (kind.read_narrow != nullptr && tensor.scalar_type() == kind.dtype) {
      read = kind.read_narrow;
    } else if (tensor.scalar_type() != kind.read_as) {
      tensor = tensor.to(kind.read_as);
    }
    if (!tensor.is_cpu()) {
      tensor = tensor.cpu();
    }
    if (tensor.is_conj() || tensor.is_neg()) {
      tensor = tensor.resolve_conj().resolve_neg();
    }
    frame.stack.resize(1);
    frame.stack[0] = to_list(tensor.contiguous(), kind.type, read);
    pop_results(frame);
  }

 private:
  using Read = c10::IValue (*)(const void* elements, int64_t index);
  struct ElementKind {
    c10::TypePtr type;
    at::ScalarType dtype;    // dtype of the tensor; floating and complex ones may have another width
    at::ScalarType read_as;  // the width of numbers in TorchScript
    Read read;
    Read read_narrow;  // reads the dtype, if it has another width; else null
  };

  template <typename Number, typename Stored = Number>
  static c10::IValue number_at(const void* elements, int64_t index) {
    return Number(static_cast<const Stored*>(elements)[index]);
  }

  // The numbers that the frontend uses.
  static const ElementKind& element_kind(int64_t number) {
    static const std::array<ElementKind, 4> kinds = {
        {{c10::IntType::get(), at::kLong, at::kLong, number_at<int64_t>, nullptr},
         {c10::FloatType::get(), at::kFloat, at::kDouble, number_at<double>, number_at<double, float>},
         {c10::BoolType::get(), at::kBool, at::kBool, number_at<bool>, nullptr},
         {c10::ComplexType::get(), at::kComplexFloat, at::kComplexDouble, number_at<c10::complex<double>>,
          number_at<c10::complex<double>, c10::complex<float>>}}};
    return kinds.at(static_cast<size_t>(number));
  }

  static c10::IValue to_list(const at::Tensor& tensor, const c10::TypePtr& type, Read read) {
    std::vector<c10::TypePtr> types = {type};  // types[i]: the type of values i dimensions above the elements
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      types.push_back(c10::ListType::create(types.back()));
    }
    int64_t next = 0;
    return rows(tensor, tensor.dim(), read, types, next);
  }

  // Builds the value `height` dimensions above the elements that begins with the element `next` of a contiguous
  // tensor.
  static c10::IValue rows(const at::Tensor& tensor, int64_t height, Read read, const std::vector<c10::TypePtr>& types,
                          int64_t& next) {
    if (height == 0) {
      return read(tensor.const_data_ptr(), next++);
    }
    const int64_t size = tensor.size(tensor.dim() - height);
    c10::impl::GenericList list(types[static_cast<size_t>(height - 1)]);
    list.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      list.push_back(rows(tensor, height - 1, read, types, next));
    }
    return list;
  }
};

// Extending a list by itself: the kernel reads elements that it has moved away.
bool forestall_extension_by_itself(torch::jit::Stack& operands) {
  if (operands[0].is(operands[1])) {
    operands[1] = operands[1].toList().copy();
  }
  return false;
}

// Division of integers without a quotient: the kernel ends the process.
bool forestall_trap(const Op& op, torch::jit::Stack& operands) {
  TORCH_CHECK(!division_traps(op, operands), operands[1].toInt() == 0
                                                 ? "integer division or modulo by zero"
                                                 : "integer overflow: the quotient of the least integer and -1 is none");
  return false;
}

// aten::to.prim_*: the kernel reads a dtype that is missing.
bool forestall_missing_dtype(const Op& op, torch::jit::Stack& operands) {
  const bool applies = copies_by_reading_no_dtype(op, operands);
  if (applies) {
    const at::Tensor tensor = operands[0].toTensor();
    operands.assign(1, tensor.to(tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  }
  return applies;
}

}  // namespace

StepPtr make_builtin_step(const Node& node, const Operands& operands, const Registers& results) {
  // An operator whose kernel in LibTorch is wrong for some operands. `forestall` handles these before the kernel gets them,
  // and returns whether it has replaced them by the results.
  const auto forestalled = [&](auto forestall) {
    const auto run = [forestall, operation = node.op().registered->getOperation()](Frame& frame) mutable {
      if (!forestall(frame.stack)) {
        operation(frame.stack);
      }
    };
    return make_stack_step(node, operands, results, run);
  };
  const Op& op = node.op();
  switch (op.opcode) {
    case Opcode::kRaise: return make_stack_step(node, operands, {}, raise_exception);
    case Opcode::kWarn: return std::make_unique<WarnStep>(node, operands);
    case Opcode::kToList: return std::make_unique<ToListStep>(node, operands, results);
    case Opcode::kAutocastCast: return make_autocast_cast_step(node, operands, results);
    case Opcode::kExtend: return forestalled(forestall_extension_by_itself);
    default: break;
  }
  if (op.division) {
    return forestalled([&op](torch::jit::Stack& stack) { return forestall_trap(op, stack); });
  }
  if (op.reads_missing_dtype) {
    return forestalled([&op](torch::jit::Stack& stack) { return forestall_missing_dtype(op, stack); });
  }
  return nullptr;
}

}  // namespace sconce
