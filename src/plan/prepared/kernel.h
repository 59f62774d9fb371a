// PreparedKernel: what a prepared step keeps from run to run.
#pragma once

#include "base/flat_map.h"
#include "ir/graph.h"
#include "plan/frame.h"
#include "plan/prepared/reused_results.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sconce {

// The random numbers that kernels of a capture draw.
struct CapturedDraws {
  const uint64_t* state = nullptr;  // on the device: seed and offset of LibTorch's generator before a replay
  uint64_t drawn = 0;               // what the kernels so far add to the offset
};

struct CaptureRun {
  FlatMap<Register, void*> number_memory;  // where on the device kernels read a number; others are part of the capture
  CapturedDraws* draws = nullptr;          // null if no node draws
};

// Limits for the kernels of a plan.
struct KernelLimits {
  bool is_exact = false;           // results must have the operators' own bits
  bool packs_weights = false;      // kernels may keep a copy of weights, in an order of their own (kernels/packed/)
  bool times_choices = false;      // where kernels keep weights, LibTorch's operators may turn out faster (Trial)
  bool pages_out_weights = false;  // constants of which kernels keep a copy may leave memory (PagedMemory)
};

// The arguments of a prepared operator, by their positions in the schema.
class KernelArguments {
 public:
  struct Argument {
    enum class Kind : uint8_t { kValue, kTensor, kTensorList };
    Kind kind = Kind::kValue;
    uint32_t first = 0;  // index of the tensor, of the list's first tensor, or of the value
    uint32_t count = 1;
  };

  bool is_tensor(size_t position) const { return arguments_[position].kind == Argument::Kind::kTensor; }
  // A shell with the operand's sizes, strides, dtype and device. Its memory is the operand's while the kernel runs, if the
  // kernel reads tensors (PreparedKernel::reads_tensors).
  const at::Tensor& tensor(size_t position) const { return *tensors_[arguments_[position].first]; }
  // The operand's first element in this run.
  void* data(size_t position) const { return data_[arguments_[position].first]; }
  // The operand in this run, if it is a weight: an attribute of the module, or a constant. A kernel may keep a copy of a
  // weight until somebody writes it. `tensor` is null for an argument of the call, and for a value that the run computes.
  struct Weight {
    const c10::TensorImpl* tensor = nullptr;
    bool is_constant = false;  // of the plan, as those of a frozen module are
  };
  Weight weight(size_t position) const { return weights_[arguments_[position].first]; }
  // The elements of a list of tensors.
  size_t count(size_t position) const { return arguments_[position].count; }
  const at::Tensor& element(size_t position, size_t i) const { return *tensors_[arguments_[position].first + i]; }
  void* element_data(size_t position, size_t i) const { return data_[arguments_[position].first + i]; }
  // Any other argument. Constant while the kernel is prepared, but for KernelRow::run_time_argument.
  const c10::IValue& value(size_t position) const { return values_[arguments_[position].first]; }
  // Where on the device the kernel reads the number when it runs; null: the number is `value`.
  const void* number_memory(size_t position) const { return number_memory_[position]; }
  bool has_number_memory() const { return !number_memory_.empty(); }
  // While the run is captured, where random numbers come from; null in other runs.
  CapturedDraws* draws() const { return draws_; }
  const Op& op() const { return *op_; }  // of a kernel that computes one operator
  bool is_exact() const { return limits_.is_exact; }
  bool packs_weights() const { return limits_.packs_weights; }
  bool pages_out_weights() const { return limits_.pages_out_weights; }
  size_t size() const { return arguments_.size(); }

 private:
  friend class KernelRunner;
  c10::IValue& value_of(size_t position) { return values_[arguments_[position].first]; }
  const Op* op_ = nullptr;
  KernelLimits limits_;
  std::vector<Argument> arguments_;
  std::vector<const at::Tensor*> tensors_;
  std::vector<void*> data_;
  std::vector<Weight> weights_;
  std::vector<c10::IValue> values_;
  std::vector<const void*> number_memory_;  // by position, or empty
  CapturedDraws* draws_ = nullptr;
};

// A result of a prepared operator.
class KernelResult {
 public:
  // Sets the result's form, and returns its shell. Empty strides mean contiguous.
  const at::Tensor& place(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                          c10::Device device = c10::kCPU);
  // For a view: takes a tensor that shares its memory with the shell of an operand. `run` sets `data`.
  void place_view(at::Tensor view) {
    shell_ = std::move(view);
    changed_ = true;
  }
  // The shell; its memory is the result's while the kernel runs.
  const at::Tensor& tensor() const { return shell_; }
  void* data = nullptr;  // of the first element in this run
  // Lets the next preparation make a new shell.
  void forget_shell() { shell_ = at::Tensor(); }

 private:
  friend class KernelRunner;
  at::Tensor shell_;
  size_t bytes_ = 0;
  uint64_t stamp_ = 0;    // of the slot while it has this shell
  bool changed_ = false;  // since the slot took the shell
  at::Tensor fresh_;      // the result of this run, while the kernel writes it
  ReusedResults reused_;  // for results without a slot
};
// One for an operator that returns a tensor; for an operator that returns a list, as many as the graph takes out of it.
using KernelResults = std::span<KernelResult>;

// The work on the rows from `first` up to `last`.
using RowsFunction = c10::function_ref<void(int64_t first, int64_t last)>;

// Prepared once for operands of given sizes, strides, dtypes and devices, and for given values; then run any number of times
// on other memory. Belongs to one frame.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // Places each result. Returns false if the operator's ordinary implementation must serve such operands. Throws what the
  // operator throws.
  virtual bool prepare(const KernelArguments& arguments, KernelResults results) = 0;
  // Prepares for other operands, at less cost. Returns false if it cannot: then a new kernel is made for them.
  virtual bool prepare_again(const KernelArguments& /*arguments*/, KernelResults /*results*/) { return false; }
  // Returns whether `run` computes element by element, and so serves operands of any number of elements that lie alike in
  // memory. `set_elements` is then called before each run, and the shells of the arguments may have other sizes.
  virtual bool is_flat() const { return false; }
  virtual void set_elements(int64_t /*elements*/) {}
  virtual void run(const KernelArguments& arguments, KernelResults results) = 0;
  // Returns whether `run` may be called: false while the kernel is compiled, for numbers of this run that it does not
  // accept, and while its weights change. Asked in each run if `may_have_to_wait`.
  virtual bool can_run(const KernelArguments& /*arguments*/) const { return true; }
  virtual bool may_have_to_wait() const { return false; }
  // Returns whether `run` reads the memory of arguments.tensor() and writes that of KernelResult::tensor(), in place of
  // the pointers.
  virtual bool reads_tensors() const { return false; }
  // Returns whether the kernel, which cannot run, is still being compiled.
  virtual bool is_being_compiled() const { return false; }
  // Why `prepare` has refused the operands, or `can_run` refuses every run.
  virtual NotPrepared why_not() const { return NotPrepared::kOperandForm; }

  // ---- a matrix product, and element-wise work on its result, part by part (prepared_step.h)
  // Returns how many rows the result has, of which `run_by_rows` completes some before others. They lie one after the other,
  // without gaps. 0: there is no such order.
  virtual int64_t rows() const { return 0; }
  // Runs, and calls `then` on any thread for parts of the rows, once each part is complete. `then` may overwrite them.
  virtual void run_by_rows(const KernelArguments& /*arguments*/, KernelResults /*results*/, const RowsFunction& /*then*/) {}
  // Returns whether the argument lies as `rows` rows, and each element of the results depends on its element at the same
  // place alone. Then `run_rows` computes the results of some rows, after `begin_rows`. It may be called on several threads
  // at once.
  virtual bool takes_rows(size_t /*argument*/, int64_t /*rows*/) const { return false; }
  virtual void begin_rows(const KernelArguments& /*arguments*/, KernelResults /*results*/) const {}
  virtual void run_rows(const KernelArguments& /*arguments*/, KernelResults /*results*/, int64_t /*rows*/, int64_t /*first*/,
                        int64_t /*last*/) const {}
};

using KernelPtr = std::unique_ptr<PreparedKernel>;
using KernelFactory = KernelPtr (*)();
template <class Kernel>
KernelPtr make_kernel() {
  return std::make_unique<Kernel>();
}

// How an operator is prepared.
struct KernelRow {
  KernelFactory make;
  bool is_view = false;  // each result is a view of the first argument
  // The position of a number that `run` reads. Its value does not decide the result's form.
  uint32_t run_time_argument = UINT32_MAX;
  bool has_rows = false;  // the kernel may complete its result row by row (PreparedKernel::rows)
  // The position of a constant list of bools: which results the operator returns. Others are undefined, and nothing uses
  // them where the operator is prepared.
  uint32_t asked_results = UINT32_MAX;
  // The kernel computes the first result alone. The operator is prepared where nothing uses the others.
  bool computes_first_result = false;
};

// A kernel that `prepare` prepares for other operands, too. Weights that are packed stay so.
class ReusableKernel : public PreparedKernel {
 public:
  bool prepare_again(const KernelArguments& arguments, KernelResults results) final { return prepare(arguments, results); }
};

}  // namespace sconce
