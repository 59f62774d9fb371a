#include "fusion/cuda/cuda_nests.h"

#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/dropout_kernel.h"
#include "fusion/cuda/grid_arguments.h"
#include "fusion/draws.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace sconce {
namespace {

constexpr int64_t kElementsOfShortFold = int64_t{1} << 18;

struct Target {
  DeviceKernelCache& kernels;
  c10::DeviceIndex device;
  DeviceLimits limits;
  bool is_blocking;
};

// The form of a grid depends on sizes, so that other loops may need other code. Where operands allow it, threads take
// several neighbors. A call whose addresses are not aligned takes the code that loads them one by one.
class CudaNest final : public NestCode {
 public:
  CudaNest(const Target& target, const KernelProgram& program) : target_(target), program_(program) {}

  void set_loops(Iteration iteration) override {
    iteration_ = std::move(iteration);
    codes_.clear();
    if (iteration_.elements() == 0) {
      return;
    }
    const std::vector<void*> aligned(iteration_.strides.size(), nullptr);
    const GridForm form = choose_form(program_, iteration_, aligned, target_.limits);
    codes_.push_back(code_of(form));
    if (form.vector > 1) {
      const std::vector<void*> between(aligned.size(), reinterpret_cast<void*>(uintptr_t{1}));
      codes_.push_back(code_of(choose_form(program_, iteration_, between, target_.limits)));
    }
  }
  // Another length may need another form.
  bool is_flat() const override { return false; }
  void set_elements(int64_t /*count*/) override { TORCH_INTERNAL_ASSERT(false, "the code is not flat"); }

  std::string refusal() const override {
    for (const Code& code : codes_) {
      if (std::string why = code.kernel->refusal(); !why.empty()) {
        return why;
      }
    }
    return {};
  }
  bool is_compiled() const override {
    return std::all_of(codes_.begin(), codes_.end(), [this](const Code& code) {
      if (code.kernel->kernel() == nullptr) {
        target_.kernels.submit(code.kernel, target_.device);
      }
      return code.kernel->kernel() != nullptr;
    });
  }
  void run(const KernelCallArguments& arguments) const override {
    if (codes_.empty()) {
      return;
    }
    const bool is_aligned = codes_.size() == 1 || are_aligned(arguments, codes_.front().kernel->grid());
    const Code& code = is_aligned ? codes_.front() : codes_.back();
    std::vector<char> parameter =
        parameter_of(code.kernel->grid(), arguments.first, arguments.numbers, arguments.number_memory, code.words);
    const std::array<void*, 1> parameters = {parameter.data()};
    DeviceRuntime& runtime = target_.kernels.runtime();
    runtime.launch(*code.kernel->kernel(), code.shape, runtime.current_stream(target_.device), parameters);
  }

 private:
  struct Code {
    std::shared_ptr<CachedDeviceKernel> kernel;
    std::vector<int64_t> words;
    LaunchShape shape;
  };

  Code code_of(const GridForm& form) const {
    GridProgram grid = grid_program(program_, form);
    const LaunchShape shape = launch_shape(grid, iteration_, target_.limits);
    return {target_.kernels.find(std::move(grid), target_.device, target_.is_blocking), words_of(form, iteration_), shape};
  }

  static bool are_aligned(const KernelCallArguments& arguments, const GridProgram& grid) {
    const KernelProgram& program = grid.program;
    for (size_t k = 0; k < arguments.first.size(); ++k) {
      const size_t bytes = c10::elementSize(program.type_of_operand(k)) * grid.form.vector;
      if (program.access_of_operand(k) == Access::kElements &&
          reinterpret_cast<uintptr_t>(arguments.first[k]) % bytes != 0) {
        return false;
      }
    }
    return true;
  }

  const Target target_;
  const KernelProgram program_;
  Iteration iteration_;
  std::vector<Code> codes_;  // the one of vectors first
};

class CudaNests final : public NestBackend {
 public:
  explicit CudaNests(const Target& target) : target_(target) {}

  c10::Device device() const override { return {target_.kernels.runtime().type(), target_.device}; }
  bool has_kernels() const override { return target_.limits.warp_threads == kThreadsOfWarp; }
  bool accepts(const ProgramBuilder& /*builder*/) const override { return true; }
  // Where few blocks would read a lot, LibTorch's kernels are faster, and more precise: they share a sum among blocks.
  bool accepts(const KernelProgram& program, const Iteration& iteration, bool folds_rows) const override {
    const bool only_folds = folds_rows && std::all_of(program.outputs.begin(), program.outputs.end(),
                                                      [](const auto& output) { return output.access == Access::kOne; });
    if (!only_folds || iteration.elements() <= kElementsOfShortFold) {
      return true;
    }
    return blocks_of_folds(iteration) >= static_cast<int64_t>(target_.limits.multiprocessors);
  }
  bool accepts_any_length(const KernelProgram& /*program*/) const override { return false; }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool /*folds_rows*/, bool /*writes*/,
                                 const std::string& /*group*/) const override {
    return std::make_unique<CudaNest>(target_, program);
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

std::unique_ptr<NestBackend> make_cuda_nests(DeviceKernelCache& kernels, c10::DeviceIndex device, bool is_blocking) {
  return std::make_unique<CudaNests>(Target{kernels, device, kernels.runtime().limits(device), is_blocking});
}

}  // namespace sconce
