#include "training/parallel/gloo.h"

#define USE_C10D_GLOO 1
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>

namespace sconce {
namespace {

void ignore_broken_pipes() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name,
                                                       int rank, int world, std::chrono::milliseconds timeout) {
  ignore_broken_pipes();
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(name, store);
  const auto options = c10d::ProcessGroupGloo::Options::create_default(timeout);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own_keys, rank, world);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(own_keys, rank, world, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace sconce
