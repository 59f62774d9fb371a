#include "fusion/cuda/cuda_nests.h"

#include "base/assert.h"
#include "fusion/cuda/captured_lists.h"
#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/dropout_kernel.h"
#include "fusion/cuda/grid_arguments.h"
#include "fusion/group/draws.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {
namespace {

constexpr int64_t kElementsOfShortReduction = int64_t{1} << 18;

struct Target {
  DeviceKernelCache& kernels;
  c10::DeviceIndex device;
  DeviceLimits limits;
  bool is_blocking;
};

// From the first byte of an operand to those that its loops reach.
struct Reach {
  int64_t low = 0;
  int64_t high = 0;  // behind the last one
};

Reach reach_of(const Iteration& iteration, size_t operand, size_t element_bytes) {
  Reach reach{.high = static_cast<int64_t>(element_bytes)};
  const auto add = [&reach](int64_t size, int64_t stride) { (stride < 0 ? reach.low : reach.high) += (size - 1) * stride; };
  for (size_t dim = 0; dim < iteration.sizes.size(); ++dim) {
    add(iteration.sizes[dim], iteration.strides[operand][dim]);
  }
  add(iteration.segments, iteration.segment_strides[operand]);
  return reach;
}

// The form of a grid depends on sizes, so that other loops may need other code. Where operands allow it, threads take
// several neighbors. Of rows that are reduced, a call whose addresses are not aligned needs code that loads elements one by
// one, which is compiled when there is such a call.
class CudaNest final : public NestCode {
 public:
  CudaNest(const Target& target, const KernelProgram& program, bool writes)
      : target_(target), program_(program), may_join_(writes && !program.has_reductions()) {}

  void set_loops(Iteration iteration) override {
    iteration_ = std::move(iteration);
    code_.reset();
    code_between_.reset();
    reaches_.clear();
    if (iteration_.elements() == 0) {
      return;
    }
    code_ = code_of(/*address=*/nullptr);
    for (size_t k = 0; may_join_ && k < program_.operand_count(); ++k) {
      reaches_.push_back(reach_of(iteration_, k, c10::elementSize(program_.type_of_operand(k))));
    }
  }
  // Another length may need another form.
  bool is_flat() const override { return false; }
  void set_elements(int64_t /*count*/) override { SCONCE_ASSERT(false, "the code is not flat"); }

  std::string refusal() const override {
    std::string why = code_ ? code_->kernel->refusal() : std::string();
    return why.empty() && code_between_ ? code_between_->kernel->refusal() : why;
  }
  bool is_compiled() const override {
    return (!code_ || is_compiled(*code_)) && (!code_between_ || is_compiled(*code_between_));
  }
  bool asks_for_addresses() const override { return code_ && code_->takes_aligned_rows(); }
  bool serves(std::span<void* const> inputs) const override {
    if (!asks_for_addresses() || are_aligned(inputs)) {
      return true;
    }
    if (!code_between_) {
      code_between_ = code_of(reinterpret_cast<void*>(uintptr_t{1}));
    }
    return is_compiled(*code_between_);
  }
  void run(const KernelCallArguments& arguments) const override {
    if (!code_) {
      return;
    }
    const Code& code = asks_for_addresses() && !are_aligned(inputs_of(arguments)) ? *code_between_ : *code_;
    std::vector<char> parameter =
        parameter_of(code.kernel->grid(), arguments.first, arguments.numbers, arguments.number_memory, code.words);
    DeviceRuntime& runtime = target_.kernels.runtime();
    const c10::Stream stream = runtime.current_stream(target_.device);
    if (may_join_) {
      launch_or_join(runtime, *code.kernel, code.shape, stream, std::move(parameter), memory_of(arguments.first));
      return;
    }
    const std::array<void*, 1> parameters = {parameter.data()};
    runtime.launch(*code.kernel->kernel(), code.shape, stream, parameters);
  }

 private:
  struct Code {
    std::shared_ptr<CachedDeviceKernel> kernel;
    std::vector<int64_t> words;
    LaunchShape shape;
    bool takes_aligned_rows() const { return kernel->grid().form.lanes > 0 && kernel->grid().form.vector > 1; }
  };

  // Returns the code for operands at this address.
  Code code_of(void* address) const {
    const std::vector<void*> first(iteration_.strides.size(), address);
    GridForm form = choose_form(program_, iteration_, first, target_.limits);
    form.has_list = may_join_;
    GridProgram grid = grid_program(program_, form);
    const LaunchShape shape = launch_shape(grid, iteration_, target_.limits);
    return {target_.kernels.find(std::move(grid), target_.device, target_.is_blocking), words_of(form, iteration_), shape};
  }
  bool is_compiled(const Code& code) const {
    if (code.kernel->kernel() == nullptr) {
      target_.kernels.submit(code.kernel, target_.device);
    }
    return code.kernel->kernel() != nullptr;
  }

  std::span<void* const> inputs_of(const KernelCallArguments& arguments) const {
    return std::span(arguments.first.data(), program_.inputs.size());
  }
  // Results of rows always are: their memory begins at a multiple of kArenaAlignment.
  bool are_aligned(std::span<void* const> inputs) const {
    const uint32_t vector = code_->kernel->grid().form.vector;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const size_t bytes = c10::elementSize(program_.type_of_operand(k)) * vector;
      if (program_.access_of_operand(k) == Access::kElements && reinterpret_cast<uintptr_t>(inputs[k]) % bytes != 0) {
        return false;
      }
    }
    return true;
  }

  std::vector<UsedMemory> memory_of(std::span<void* const> first) const {
    std::vector<UsedMemory> memory;
    for (size_t k = 0; k < first.size(); ++k) {
      const auto at = reinterpret_cast<intptr_t>(first[k]);
      memory.push_back({.begin = static_cast<uintptr_t>(at + reaches_[k].low),
                        .end = static_cast<uintptr_t>(at + reaches_[k].high),
                        .is_written = k >= program_.inputs.size()});
    }
    return memory;
  }

  const Target target_;
  const KernelProgram program_;
  const bool may_join_;  // other launches in a capture
  Iteration iteration_;
  std::vector<Reach> reaches_;  // by operand
  std::optional<Code> code_;
  mutable std::optional<Code> code_between_;  // for rows that are not aligned
};

class CudaNests final : public KernelBackend {
 public:
  explicit CudaNests(const Target& target) : target_(target) {}

  c10::Device device() const override { return {target_.kernels.runtime().type(), target_.device}; }
  bool has_kernels() const override { return target_.limits.warp_threads == kThreadsOfWarp; }
  bool accepts(const ProgramBuilder& /*builder*/) const override { return true; }
  // Where few blocks would read a lot, LibTorch's kernels are faster, and more precise: they share a sum among blocks.
  std::optional<NotPrepared> why_not(const KernelProgram& program, const Iteration& iteration,
                                     bool reduces_rows) const override {
    const bool only_reductions =
        reduces_rows && std::all_of(program.outputs.begin(), program.outputs.end(),
                                    [](const auto& output) { return output.access == Access::kOne; });
    const bool is_taken = !only_reductions || iteration.elements() <= kElementsOfShortReduction ||
                          blocks_of_reductions(iteration) >= static_cast<int64_t>(target_.limits.multiprocessors);
    return is_taken ? std::nullopt : std::optional(NotPrepared::kFastEnough);
  }
  bool accepts_any_length(const KernelProgram& /*program*/) const override { return false; }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool /*reduces_rows*/, bool writes,
                                 const std::string& /*group*/) const override {
    return std::make_unique<CudaNest>(target_, program, writes);
  }
  KernelPtr make_drawing_kernel(const NodeGroup& group) const override {
    return may_draw_by_kernel(*group.nodes.front())
               ? make_dropout_kernel(group, target_.kernels, target_.device, target_.is_blocking)
               : nullptr;
  }

 private:
  const Target target_;
};

}  // namespace

std::unique_ptr<KernelBackend> make_cuda_nests(DeviceKernelCache& kernels, c10::DeviceIndex device, bool is_blocking) {
  return std::make_unique<CudaNests>(Target{kernels, device, kernels.runtime().limits(device), is_blocking});
}

}  // namespace sconce
