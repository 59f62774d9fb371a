#include "executor/live_programs.h"

#include "executor/executor_impl.h"

#include <utility>

namespace sconce {
namespace {

void add(Counters& sum, const Counters& counters) {
  sum.invocations += counters.invocations;
  sum.cache_hits += counters.cache_hits;
  sum.cache_misses += counters.cache_misses;
  sum.compiles += counters.compiles;
  sum.refusals += counters.refusals;
  sum.evictions += counters.evictions;
}

}  // namespace

LivePrograms& LivePrograms::of_process() {
  static auto* const programs = new LivePrograms;  // programs may outlive static objects
  return *programs;
}

LivePrograms::Entry::Entry(std::string name, const GraphExecutor::Impl& program)
    : name_(std::move(name)), program_(program) {
  LivePrograms& all = of_process();
  const std::lock_guard<std::mutex> lock(all.mutex_);
  all.by_name_[name_].programs.insert(&program_);
}

LivePrograms::Entry::~Entry() {
  LivePrograms& all = of_process();
  const Counters last = program_.counters();
  const std::lock_guard<std::mutex> lock(all.mutex_);
  Named& named = all.by_name_[name_];
  named.programs.erase(&program_);
  add(named.past, last);
}

void LivePrograms::Entry::keep_counters() const {
  LivePrograms& all = of_process();
  const Counters last = program_.counters();
  const std::lock_guard<std::mutex> lock(all.mutex_);
  add(all.by_name_[name_].past, last);
}

std::vector<MethodStatus> LivePrograms::status() {
  std::vector<MethodStatus> methods;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [name, named] : by_name_) {
    MethodStatus& method = methods.emplace_back(MethodStatus{name, named.programs.size(), named.past});
    for (const GraphExecutor::Impl* program : named.programs) {
      add(method.counters, program->counters());
    }
  }
  return methods;
}

}  // namespace sconce
