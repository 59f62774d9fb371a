#include "tools/sconce/bench/counted_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

namespace sconce::cli {
namespace {

std::atomic<size_t> living{0};
std::atomic<size_t> peak{0};

// The bytes of a block stand before it, so that the block itself is the context: raw_allocate needs that.
constexpr size_t kHeader = 64;  // keeps the alignment of tensors

class CountingAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    }
    auto* const block = static_cast<char*>(c10::alloc_cpu(kHeader + bytes));
    std::memcpy(block, &bytes, sizeof(bytes));
    const size_t now = living.fetch_add(bytes) + bytes;
    size_t before = peak.load();
    while (now > before && !peak.compare_exchange_weak(before, now)) {
    }
    return {block + kHeader, block + kHeader, &release, c10::Device(c10::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* data) {
    if (data != nullptr) {
      char* const block = static_cast<char*>(data) - kHeader;
      size_t bytes = 0;
      std::memcpy(&bytes, block, sizeof(bytes));
      living.fetch_sub(bytes);
      c10::free_cpu(block);
    }
  }
};

void add_arenas(const PlanExplanation& plan, Arenas& arenas) {
  arenas.bytes += plan.memory.arena_bytes;
  arenas.lower_bound += plan.memory.lower_bound;
  if (plan.gradients) {
    for (const DifferentiableExplanation& subgraph : plan.gradients->subgraphs) {
      for (const PlanExplanation& each : subgraph.plans) {
        add_arenas(each, arenas);
      }
    }
  }
}

}  // namespace

Arenas arenas_of(const Explanation& explanation) {
  Arenas arenas;
  for (const PlanExplanation& plan : explanation.plans) {
    add_arenas(plan, arenas);
  }
  for (const Explanation& recorded : explanation.recorded.plans) {
    for (const PlanExplanation& plan : recorded.plans) {
      add_arenas(plan, arenas);
    }
  }
  return arenas;
}

void CountedMemory::begin() {
  static CountingAllocator* const allocator = [] {
    auto* made = new CountingAllocator;  // tensors may outlive static objects
    c10::SetCPUAllocator(made, /*priority=*/255);
    return made;
  }();
  (void)allocator;
}
size_t CountedMemory::living_bytes() { return living; }
size_t CountedMemory::peak_bytes() { return peak; }
void CountedMemory::restart_peak() { peak = living.load(); }

}  // namespace sconce::cli
