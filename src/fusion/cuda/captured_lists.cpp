#include "fusion/cuda/captured_lists.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace sconce {
namespace {

struct CapturedList {
  const CachedDeviceKernel* kernel;
  CapturedWork launch;
  LaunchShape shape;  // of all calls
  std::vector<ListedCall> calls;
  std::vector<UsedMemory> memory;  // of all calls
};

// The launches at the end of what a thread captures.
struct LastLaunches {
  std::optional<CapturedWork> last;
  std::vector<CapturedList> lists;
};

// A thread captures one stream at a time.
LastLaunches& last_launches() {
  thread_local LastLaunches launches;
  return launches;
}

bool overlap(const UsedMemory& a, const UsedMemory& b) {
  return (a.is_written || b.is_written) && a.begin < b.end && b.begin < a.end;
}

bool may_run_at_once(const std::vector<UsedMemory>& a, const std::vector<UsedMemory>& b) {
  return std::none_of(a.begin(), a.end(), [&](const UsedMemory& each) {
    return std::any_of(b.begin(), b.end(), [&](const UsedMemory& other) { return overlap(each, other); });
  });
}

// Returns the list that the call may join; null if there is none. The later the list, the fewer may be in the way.
CapturedList* find_list(std::vector<CapturedList>& lists, const CachedDeviceKernel& kernel,
                        const std::vector<UsedMemory>& memory) {
  for (size_t i = lists.size(); i-- > 0 && may_run_at_once(lists[i].memory, memory);) {
    if (lists[i].kernel == &kernel && lists[i].calls.size() < calls_of_list(kernel.grid())) {
      return &lists[i];
    }
  }
  return nullptr;
}

void join(DeviceRuntime& runtime, CapturedList& list, const LaunchShape& shape, c10::DeviceIndex device,
          std::vector<char> parameter, const std::vector<UsedMemory>& memory) {
  list.calls.push_back({std::move(parameter), shape.grid[0]});
  list.memory.insert(list.memory.end(), memory.begin(), memory.end());
  list.shape.grid[0] += shape.grid[0];
  std::vector<char> of_all = parameter_of_list(list.kernel->grid(), list.calls);
  const std::array<void*, 1> parameters = {of_all.data()};
  runtime.change_launch(list.launch, *list.kernel->list_kernel(), list.shape, device, parameters);
}

}  // namespace

void launch_or_join(DeviceRuntime& runtime, const CachedDeviceKernel& kernel, const LaunchShape& shape, c10::Stream stream,
                    std::vector<char> parameter, std::vector<UsedMemory> memory) {
  LastLaunches& launches = last_launches();
  if (launches.last && runtime.last_captured(stream) != launches.last) {
    launches = {};
  }
  if (CapturedList* const list = find_list(launches.lists, kernel, memory)) {
    join(runtime, *list, shape, stream.device_index(), std::move(parameter), memory);
    return;
  }
  const std::array<void*, 1> parameters = {parameter.data()};
  runtime.launch(*kernel.kernel(), shape, stream, parameters);
  launches.last = runtime.last_captured(stream);
  if (launches.last) {
    launches.lists.push_back({&kernel, *launches.last, shape, {{std::move(parameter), shape.grid[0]}}, std::move(memory)});
  }
}

}  // namespace sconce
