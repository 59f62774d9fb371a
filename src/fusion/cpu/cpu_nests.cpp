#include "fusion/cpu/cpu_nests.h"

#include "fusion/cpu/faster_by_libtorch.h"
#include "fusion/cpu/kernel_cache.h"
#include "fusion/cpu/kernel_loops.h"
#include "fusion/program/cost_model.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/program_builder.h"
#include "fusion/program/schedule.h"
#include "fusion/program/shared_values.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {
namespace {

// A program's kernel, with loops that it runs.
class LoopedKernel {
 public:
  explicit LoopedKernel(std::shared_ptr<CachedKernel> kernel) : kernel_(std::move(kernel)) {
    for (const RowBuffer& buffer : schedule_of(kernel_->program()).buffers) {
      buffers_.push_back(buffer.output ? 0 : c10::elementSize(buffer.type));
    }
  }

  void set_loops(Iteration iteration, bool reduces_rows) {
    loops_ = KernelLoops(std::move(iteration), buffers_, kernel_->program().code.size(), reduces_rows);
  }
  KernelLoops& loops() { return loops_; }
  const KernelLoops& loops() const { return loops_; }
  std::string refusal() const { return kernel_->refusal(); }
  bool is_compiled() const {
    const bool has_code = function() != nullptr;
    if (!has_code) {
      KernelCache::submit(kernel_);
    }
    return has_code;
  }
  KernelFunction function() const { return kernel_->function(); }

 private:
  std::shared_ptr<CachedKernel> kernel_;
  std::vector<size_t> buffers_;  // bytes for each element of a row; 0: an output is the buffer
  KernelLoops loops_;
};

class CpuNest final : public NestCode {
 public:
  using FindKernel = std::function<std::shared_ptr<CachedKernel>(KernelProgram program)>;

  // `find`: returns the kernel of a program. `shares_values`: see SharedValues.
  CpuNest(const KernelProgram& program, bool reduces_rows, bool shares_values, FindKernel find)
      : program_(program), reduces_rows_(reduces_rows), shares_values_(shares_values), find_(std::move(find)) {}

  void set_loops(Iteration iteration) override {
    auto of_all_rows = shares_values_ ? inputs_of_all_rows(program_, iteration) : std::vector<bool>();
    if (!rows_ || of_all_rows != of_all_rows_) {
      split_ = split_shared_values(program_, of_all_rows);
      before_ = split_ ? std::optional<LoopedKernel>(find_(split_->before)) : std::nullopt;
      rows_.emplace(find_(split_ ? split_->rows : program_));
      of_all_rows_ = std::move(of_all_rows);
    }
    if (split_) {
      before_->set_loops(iteration_before(*split_, iteration), /*reduces_rows=*/false);
      values_.resize(split_->before.outputs.size());
      for (std::vector<double>& value : values_) {
        value.resize(static_cast<size_t>(iteration.sizes.back()));
      }
    }
    rows_->set_loops(split_ ? iteration_of_rows(*split_, iteration) : std::move(iteration), reduces_rows_);
  }
  bool is_flat() const override { return rows_->loops().is_flat(); }
  void set_elements(int64_t count) override { rows_->loops().set_elements(count); }
  std::string refusal() const override {
    std::string refusal = rows_ ? rows_->refusal() : std::string();
    return refusal.empty() && before_ ? before_->refusal() : refusal;
  }
  bool is_compiled() const override {
    const bool is_before_compiled = !before_ || before_->is_compiled();
    return rows_->is_compiled() && is_before_compiled;
  }
  bool has_rows(size_t input, int64_t rows) const override {
    if (!split_) {
      return rows_->loops().row_dimension(input, rows).has_value();
    }
    const std::vector<size_t>& inputs = split_->inputs_of_rows;
    const auto found = std::find(inputs.begin(), inputs.end(), input);
    return found != inputs.end() &&
           rows_->loops().row_dimension(static_cast<size_t>(found - inputs.begin()), rows).has_value();
  }
  void begin_rows(const KernelCallArguments& arguments) const override {
    if (split_) {
      KernelCallArguments call{.first = {}, .numbers = arguments.numbers, .number_memory = {}};
      for (const size_t input : split_->inputs_before) {
        call.first.push_back(arguments.first[input]);
      }
      add_values(call);
      run_kernel(before_->loops(), before_->function(), call);
    }
  }
  void run_rows(const KernelCallArguments& arguments, int64_t rows, int64_t first, int64_t last) const override {
    run_kernel_rows(rows_->loops(), rows_->function(), split_ ? of_rows(arguments) : arguments, rows, first, last);
  }
  void run(const KernelCallArguments& arguments) const override {
    begin_rows(arguments);
    run_kernel(rows_->loops(), rows_->function(), split_ ? of_rows(arguments) : arguments);
  }

 private:
  void add_values(KernelCallArguments& call) const {
    for (std::vector<double>& value : values_) {
      call.first.push_back(value.data());
    }
  }
  // Returns the arguments of the program of the rows.
  KernelCallArguments of_rows(const KernelCallArguments& arguments) const {
    KernelCallArguments call{.first = {}, .numbers = arguments.numbers, .number_memory = {}};
    for (const size_t input : split_->inputs_of_rows) {
      call.first.push_back(arguments.first[input]);
    }
    add_values(call);
    call.first.append(arguments.first.begin() + static_cast<int64_t>(program_.inputs.size()), arguments.first.end());
    return call;
  }

  const KernelProgram program_;
  const bool reduces_rows_;
  const bool shares_values_;
  const FindKernel find_;
  std::vector<bool> of_all_rows_;  // by input, as the kernels were found for it
  std::optional<SharedValues> split_;
  std::optional<LoopedKernel> before_;
  std::optional<LoopedKernel> rows_;
  mutable std::vector<std::vector<double>> values_;  // what `before_` computes: elements of up to eight bytes
};

class CpuNests final : public KernelBackend {
 public:
  CpuNests(size_t lanes, bool is_blocking, bool is_selective)
      : lanes_(lanes), is_blocking_(is_blocking), is_selective_(is_selective) {}

  c10::Device device() const override { return c10::kCPU; }
  bool has_kernels() const override { return lanes_ != 0; }
  bool accepts(const ProgramBuilder& builder) const override {
    return (lanes_ != kGenericLanes || !builder.calls_functions()) && !builder.has_type(at::kHalf);
  }
  std::optional<NotPrepared> why_not(const KernelProgram& program, const Iteration& iteration,
                                     bool reduces_rows) const override {
    if (reduces_rows && is_imprecise(iteration)) {
      return NotPrepared::kOperandForm;
    }
    return is_selective_ && is_faster_by_libtorch(program, iteration, lanes_) ? std::optional(NotPrepared::kFastEnough)
                                                                              : std::nullopt;
  }
  bool accepts_any_length(const KernelProgram& program) const override {
    return !(is_selective_ && is_copy_or_function(program));
  }
  std::unique_ptr<NestCode> make(const KernelProgram& program, bool reduces_rows, bool writes,
                                 const std::string& group) const override {
    const bool streams = is_selective_ && writes && !calls_library(program);
    const size_t lanes = streams ? std::min(lanes_, cost_model::kLanesOfStream) : lanes_;
    return std::make_unique<CpuNest>(program, reduces_rows, /*shares_values=*/!writes,
                                     [lanes, is_blocking = is_blocking_, group](KernelProgram part) {
                                       return KernelCache::instance().find(std::move(part), lanes, is_blocking, group);
                                     });
  }

 private:
  // Lanes add up a segment's elements one after the other, and columns have cascades.
  static bool is_imprecise(const Iteration& iteration) {
    return iteration.order != LoopOrder::kColumns &&
           std::max(iteration.sizes.back(), iteration.segments) > cost_model::kMaxReducedRow;
  }

  const size_t lanes_;
  const bool is_blocking_;
  const bool is_selective_;
};

}  // namespace

std::unique_ptr<KernelBackend> make_cpu_nests(size_t lanes, bool is_blocking, bool is_selective) {
  return std::make_unique<CpuNests>(lanes, is_blocking, is_selective);
}

}  // namespace sconce
