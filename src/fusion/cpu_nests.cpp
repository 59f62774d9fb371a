#include "fusion/cpu_nests.h"

#include "fusion/cost_model.h"
#include "fusion/faster_by_libtorch.h"
#include "fusion/kernel_cache.h"
#include "fusion/kernel_loops.h"
#include "fusion/kernel_width.h"
#include "fusion/program_builder.h"
#include "fusion/schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sconce {
namespace {

class CpuNest final : public NestCode {
 public:
  CpuNest(std::shared_ptr<CachedKernel> kernel, std::vector<size_t> buffers, bool folds_rows)
      : kernel_(std::move(kernel)), buffers_(std::move(buffers)), folds_rows_(folds_rows) {}

  void set_loops(Iteration iteration) override {
    loops_ = KernelLoops(std::move(iteration), buffers_, kernel_->program().code.size(), folds_rows_);
  }
  bool is_flat() const override { return loops_.is_flat(); }
  void set_elements(int64_t count) override { loops_.set_elements(count); }
  std::string refusal() const override { return kernel_->refusal(); }
  bool is_compiled() const override {
    const bool has_code = kernel_->function() != nullptr;
    if (!has_code) {
      KernelCache::submit(kernel_);
    }
    return has_code;
  }
  bool has_rows(size_t input, int64_t rows) const override { return loops_.row_dimension(input, rows).has_value(); }
  void run_rows(const KernelCallArguments& arguments, int64_t rows, int64_t first, int64_t last) const override {
    run_kernel_rows(loops_, kernel_->function(), arguments, rows, first, last);
  }
  void run(const KernelCallArguments& arguments) const override { run_kernel(loops_, kernel_->function(), arguments); }

 private:
  const std::shared_ptr<CachedKernel> kernel_;
  const std::vector<size_t> buffers_;  // bytes for each element of a row; 0: an output is the buffer
  const bool folds_rows_;
  KernelLoops loops_;
};

class CpuNests final : public NestBackend {
 public:
  CpuNests(size_t lanes, bool is_blocking, bool is_selective)
      : lanes_(lanes), is_blocking_(is_blocking), is_selective_(is_selective) {}

  c10::Device device() const override { return c10::kCPU; }
  bool has_kernels() const override { return lanes_ != 0; }
  bool accepts(const ProgramBuilder& builder) const override {
    return (lanes_ != kGenericLanes || !builder.calls_functions()) && !builder.has_type(at::kHalf);
  }
  bool accepts(const KernelProgram& program, const Iteration& iteration, bool folds_rows) const override {
    return !(folds_rows && is_imprecise(iteration)) && !(is_selective_ && is_faster_by_libtorch(program, iteration, lanes_));
  }
  bool accepts_any_length(const KernelProgram& program) const override {
    return !(is_selective_ && is_copy_or_function(program));
  }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool folds_rows, bool writes,
                                 const std::string& group) const override {
    std::vector<size_t> buffers;
    for (const RowBuffer& buffer : schedule_of(program).buffers) {
      buffers.push_back(buffer.output ? 0 : c10::elementSize(buffer.type));
    }
    const bool streams = is_selective_ && writes && !calls_library(program);
    const size_t lanes = streams ? std::min(lanes_, cost_model::kLanesOfStream) : lanes_;
    return std::make_unique<CpuNest>(KernelCache::instance().find(program, lanes, is_blocking_, group), std::move(buffers),
                                     folds_rows);
  }

 private:
  // Lanes add up a segment's elements one after the other, and columns have cascades.
  static bool is_imprecise(const Iteration& iteration) {
    return iteration.order != LoopOrder::kColumns &&
           std::max(iteration.sizes.back(), iteration.segments) > cost_model::kMaxFoldedRow;
  }

  const size_t lanes_;
  const bool is_blocking_;
  const bool is_selective_;
};

}  // namespace

std::unique_ptr<NestBackend> make_cpu_nests(size_t lanes, bool is_blocking, bool is_selective) {
  return std::make_unique<CpuNests>(lanes, is_blocking, is_selective);
}

}  // namespace sconce
