#include <sconce/data_parallel.h>

#include "base/exception_message.h"
#include "training/parallel/gloo.h"
#include "training/parallel/gradient_buckets.h"
#include "training/parallel/rank_group.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace sconce {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* const text = std::getenv(name.c_str());
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional<std::string>(text);
}

std::string required_variable(const std::string& name) {
  std::optional<std::string> text = variable(name);
  TORCH_CHECK(text, "data parallel: RANK or WORLD_SIZE is set, but not ", name, "; torchrun sets them all");
  return *std::move(text);
}

int number_of(const std::string& name, const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TORCH_CHECK(error == std::errc() && end == text.data() + text.size() && number >= 0, "data parallel: ", name, " is '",
              text, "', not a number");
  return number;
}

void expect_rank(int rank, int world) {
  TORCH_CHECK(rank >= 0 && rank < world, "data parallel: there is no rank ", rank, " of ", world);
}

c10::intrusive_ptr<c10d::Store> store_of_environment(int rank, int world, const DataParallelSettings& settings) {
  const std::string address = required_variable("MASTER_ADDR");
  const int port = number_of("MASTER_PORT", required_variable("MASTER_PORT"));
  TORCH_CHECK(port <= 65535, "data parallel: MASTER_PORT is ", port, ", which is no port");
  const bool agent_holds_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = rank == 0 && !agent_holds_store;
  options.numWorkers = static_cast<size_t>(world);
  options.waitWorkers = !agent_holds_store;
  options.timeout = settings.timeout;
  try {
    const auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
    // The agent's store outlives the processes that it starts again.
    return c10::make_intrusive<c10d::PrefixStore>("sconce/attempt_" + variable("TORCHELASTIC_RESTART_COUNT").value_or("0"),
                                                  store);
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "data parallel: rank ", rank, " of ", world, " cannot ",
                options.isServer ? "open the store of the ranks at " : "reach the store of the ranks at ", address, ":",
                port, " (MASTER_ADDR, MASTER_PORT): ", one_line_message(error));
  }
}

std::shared_ptr<RankGroup> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                      const DataParallelSettings& settings) {
  expect_rank(rank, world);
  static std::atomic<uint64_t> groups = 0;
  std::string name = "sconce_" + std::to_string(groups++);
  try {
    auto group = make_gloo_group(store, "gradients", rank, world, settings.timeout);
    group->setGroupName(name);
    c10d::register_process_group(name, group);
    return std::make_shared<RankGroup>(std::move(group), store, std::move(name), /*is_own=*/true, settings);
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "data parallel: rank ", rank, " of ", world,
                " cannot connect to the others: ", one_line_message(error));
  }
}

// Returns how often ranks of the caller's group of this name were joined before: as often on every rank.
size_t times_joined(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, size_t> times;
  const std::lock_guard lock(mutex);
  return times[name]++;
}

}  // namespace

DataParallel DataParallel::from_environment(const DataParallelSettings& settings) {
  if (!variable("RANK") && !variable("WORLD_SIZE")) {
    return {c10::make_intrusive<c10d::HashStore>(), 0, 1, settings};
  }
  const int rank = number_of("RANK", required_variable("RANK"));
  const int world = number_of("WORLD_SIZE", required_variable("WORLD_SIZE"));
  expect_rank(rank, world);
  return {store_of_environment(rank, world, settings), rank, world, settings};
}

DataParallel::DataParallel(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                           const DataParallelSettings& settings)
    : group_(make_group(store, rank, world_size, settings)) {}

DataParallel::DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const DataParallelSettings& settings) {
  TORCH_CHECK(group != nullptr, "data parallel: there is no process group");
  std::string name = group->getGroupName();
  c10::intrusive_ptr<c10d::Store> store = group->getStore();
  if (store != nullptr) {
    store = c10::make_intrusive<c10d::PrefixStore>("sconce/" + std::to_string(times_joined(name)), store);
  }
  // torch.distributed names the devices of GPUs, too, for a group of gloo alone.
  const std::vector<c10::Device> devices = group->getDeviceTypes();
  const bool has_cpus = std::ranges::any_of(devices, [](const c10::Device& device) { return device.is_cpu(); });
  if (has_cpus && group->getBackend(at::kCPU)->getBackendName() == "gloo" && store != nullptr) {
    group_ = make_group(store, group->getRank(), group->getSize(), settings);
  } else {
    group_ = std::make_shared<RankGroup>(std::move(group), store, std::move(name), /*is_own=*/false, settings);
  }
}

int DataParallel::rank() const { return group_->rank(); }
int DataParallel::world_size() const { return group_->world(); }

void DataParallel::broadcast(const Module& module) const {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& parameter : module.script_module().parameters()) {
    tensors.push_back(parameter);
  }
  for (const at::Tensor& buffer : module.script_module().buffers()) {
    tensors.push_back(buffer);
  }
  group_->run([&] {
    group_->expect_as_on_rank_0("parameters and buffers", describe_inputs(tensors));
    group_->broadcast(tensors);
  });
}

void DataParallel::broadcast(const std::vector<at::Tensor>& tensors) const {
  group_->run([&] { group_->broadcast(tensors); });
}

void DataParallel::sum(const at::Tensor& tensor) const {
  TORCH_CHECK(tensor.defined() && tensor.is_contiguous(), "data parallel: only contiguous tensors are summed over ranks");
  group_->run([&] { group_->begin_sum(tensor)->wait(); });
}

void DataParallel::leave(const std::string& reason) const { group_->leave(reason); }

void DataParallel::barrier() const {
  group_->run([&] { group_->barrier(); });
}

void DataParallel::average_gradients(const std::vector<at::Tensor>& parameters) const {
  TORCH_CHECK(!parameters.empty() && std::ranges::all_of(parameters, &at::Tensor::defined),
              "data parallel: average_gradients takes one or more tensors, none of them undefined");
  group_->run([&] { group_->buckets_of(parameters)->reduce(1.0 / group_->world()); });
}

}  // namespace sconce
