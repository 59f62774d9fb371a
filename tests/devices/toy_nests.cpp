// The kernels of the toy device: kernel programs, interpreted.
#include "tests/devices/toy_device.h"
#include "tests/fusion/kernel_interpreter.h"

#include "fusion/program/kernel_backend.h"

#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

class ToyNest final : public NestCode {
 public:
  ToyNest(const KernelProgram& program, std::atomic<size_t>& runs) : program_(program), runs_(runs) {}
  void set_loops(Iteration iteration) override { iteration_ = std::move(iteration); }
  bool is_flat() const override { return false; }
  void set_elements(int64_t /*count*/) override { TORCH_INTERNAL_ASSERT(false, "the code is not flat"); }
  std::string refusal() const override { return {}; }
  bool is_compiled() const override { return true; }

  void run(const KernelCallArguments& arguments) const override {
    ++runs_;
    const size_t rank = iteration_.sizes.size();
    KernelCallFrame frame;
    frame.operands.assign(arguments.first.begin(), arguments.first.end());
    frame.numbers.assign(arguments.numbers.begin(), arguments.numbers.end());
    for (const std::vector<int64_t>& strides : iteration_.strides) {
      frame.row_steps.push_back(strides[rank - 2]);
      frame.element_steps.push_back(strides[rank - 1]);
    }
    frame.segment_steps = iteration_.segment_strides;
    frame.rows = iteration_.sizes[rank - 2];
    frame.elements = iteration_.sizes[rank - 1];
    frame.segments = iteration_.segments;
    run_dimensions(frame, 0);
  }

 private:
  void run_dimensions(const KernelCallFrame& frame, size_t dim) const {
    if (dim + 2 == iteration_.sizes.size()) {
      KernelInterpreter(program_, /*fuses=*/true).run(frame);
      return;
    }
    KernelCallFrame inner = frame;
    for (int64_t i = 0; i < iteration_.sizes[dim]; ++i) {
      run_dimensions(inner, dim + 1);
      for (size_t k = 0; k < inner.operands.size(); ++k) {
        inner.operands[k] = static_cast<char*>(inner.operands[k]) + iteration_.strides[k][dim];
      }
    }
  }

  const KernelProgram program_;
  std::atomic<size_t>& runs_;
  Iteration iteration_;
};

class ToyNests final : public KernelBackend {
 public:
  explicit ToyNests(std::atomic<size_t>& runs) : runs_(runs) {}
  c10::Device device() const override { return kToy; }
  bool has_kernels() const override { return true; }
  bool accepts(const ProgramBuilder& /*builder*/) const override { return true; }
  std::optional<NotPrepared> why_not(const KernelProgram& /*program*/, const Iteration& /*iteration*/,
                                     bool /*reduces_rows*/) const override {
    return std::nullopt;
  }
  bool accepts_any_length(const KernelProgram& /*program*/) const override { return true; }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool /*reduces_rows*/, bool /*writes*/,
                                 const std::string& /*group*/) const override {
    return std::make_unique<ToyNest>(program, runs_);
  }

 private:
  std::atomic<size_t>& runs_;
};

}  // namespace

std::shared_ptr<const KernelBackend> ToyRuntime::make_nests(c10::DeviceIndex /*device*/, bool /*is_blocking*/) {
  return has_kernels_ ? std::make_shared<ToyNests>(kernels_run_) : nullptr;
}

}  // namespace sconce::testing
