#include <sconce/compiled_backward.h>

#include "training/backward/backward_programs.h"
#include "training/backward/engine.h"

namespace sconce {
namespace {

// Never destroyed: threads may run backward until the process ends.
const std::shared_ptr<BackwardPrograms>& programs_of_process() {
  static const auto& programs = *new std::shared_ptr<BackwardPrograms>(std::make_shared<BackwardPrograms>(Options()));
  return programs;
}

}  // namespace

BackwardCache::BackwardCache(const Options& options) : programs_(std::make_shared<BackwardPrograms>(options)) {}
BackwardCache::~BackwardCache() = default;
BackwardExplanation BackwardCache::explain() const { return programs_->explain(); }
void BackwardCache::clear() { programs_->clear(); }
void BackwardCache::wait_for_compiles() const { programs_->wait_for_compiles(); }

CompiledBackward::CompiledBackward() : programs_(programs_of_process()), outer_(set_backward_programs(programs_.get())) {}
CompiledBackward::CompiledBackward(const BackwardCache& cache)
    : programs_(cache.programs_), outer_(set_backward_programs(programs_.get())) {}
CompiledBackward::CompiledBackward(const Options& options) : CompiledBackward(BackwardCache(options)) {}
CompiledBackward::~CompiledBackward() { set_backward_programs(outer_); }
BackwardExplanation CompiledBackward::explain() const { return programs_->explain(); }
void CompiledBackward::wait_for_compiles() const { programs_->wait_for_compiles(); }

EagerBackward::EagerBackward() : outer_(set_backward_programs(nullptr)) {}
EagerBackward::~EagerBackward() { set_backward_programs(outer_); }

}  // namespace sconce
