#include "training/parallel/rank_group.h"

#include "base/exception_message.h"
#include "base/log.h"
#include "plan/device/device.h"
#include "training/parallel/gloo.h"
#include "training/parallel/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <thread>
#include <utility>

namespace sconce {
namespace {

using namespace std::chrono_literals;

// How long a rank that lost its connection waits for the reasons of the others.
constexpr auto kTimeForNotes = 2s;
constexpr const char* kLost = "lost";

// A program trains a few sets of parameters by turns, as a generator and its critic.
constexpr size_t kMaxBuckets = 8;

// gloo's exceptions are of no class of LibTorch's. Each of them names a file of its transport.
bool is_of_connection(const std::string& message) {
  return message.find("gloo/") != std::string::npos || message.find("NCCL") != std::string::npos ||
         message.find("Connection closed by peer") != std::string::npos;
}

std::vector<uint8_t> bytes_of_text(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

RankGroup::RankGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::Store> store, std::string name,
                     bool is_own, const DataParallelSettings& settings)
    : group_(std::move(group)),
      store_(std::move(store)),
      name_(std::move(name)),
      name_of_norms_(name_ + "_norms"),
      is_own_(is_own),
      settings_(settings),
      rank_(group_->getRank()),
      world_(group_->getSize()) {}

RankGroup::~RankGroup() {
  if (broken_.empty()) {
    leave_note("has left the group");
  }
}

const std::string& RankGroup::name_of_norms(c10::DeviceType type) {
  if (norms_ == nullptr) {
    TORCH_CHECK(is_own_,
                "data parallel: batch norms need connections of their own, and ranks of a group without gloo alone "
                "cannot make any; give DataParallel a store, or a group of gloo");
    norms_ = make_gloo_group(store_, "norms", rank_, world_, settings_.timeout);
    norms_->setGroupName(name_of_norms_);
    c10d::register_process_group(name_of_norms_, norms_);
  }
  serve(*norms_, type);
  return name_of_norms_;
}

void RankGroup::serve(c10d::ProcessGroup& group, c10::DeviceType type) const {
  const auto served = group.getDeviceTypes();
  if (!is_own_ || std::ranges::find(served, type, &c10::Device::type) != served.end()) {
    return;
  }
  auto exchange = find_device_runtime(type)
                      .value_or_throw("data parallel")
                      ->make_exchange(c10::make_intrusive<c10d::PrefixStore>(c10::DeviceTypeName(type), group.getStore()),
                                      rank_, world_, settings_.timeout);
  group.setBackend(type, c10d::ProcessGroup::strToBackendType(exchange->getBackendName()), exchange);
}

RankGroup::Work RankGroup::begin_sum(const at::Tensor& tensor) {
  serve(*group_, tensor.device().type());
  std::vector<at::Tensor> tensors = {tensor};
  return group_->allreduce(tensors);
}

RankGroup::Work RankGroup::begin_gather(const at::Tensor& whole, const at::Tensor& part) {
  serve(*group_, whole.device().type());
  at::Tensor to = whole;
  at::Tensor from = part;
  return group_->_allgather_base(to, from);
}

void RankGroup::send_from_rank_0(const at::Tensor& tensor) {
  serve(*group_, tensor.device().type());
  std::vector<at::Tensor> tensors = {tensor};
  group_->broadcast(tensors)->wait();
}

void RankGroup::broadcast(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.defined(), "data parallel: a tensor to exchange is undefined");
    TORCH_CHECK(tensor.layout() == at::kStrided, "data parallel: ranks exchange dense tensors, not ", tensor.layout());
  }
  if (tensors.empty()) {
    return;
  }
  const BucketLayout layout = BucketLayout::of(tensors, settings_.bucket_bytes, settings_.bucket_bytes, /*parts=*/1);
  for (const BucketLayout::Bucket& bucket : layout.buckets) {
    const at::Tensor sent = at::zeros({bucket.size}, at::TensorOptions(bucket.dtype).device(bucket.device));
    const auto place_of = [&](const BucketLayout::Member& member) {
      const at::Tensor& tensor = tensors[member.parameter];
      return sent.narrow(0, member.offset, tensor.numel()).view(tensor.sizes());
    };
    for (const BucketLayout::Member& member : bucket.members) {
      place_of(member).copy_(tensors[member.parameter]);
    }
    send_from_rank_0(sent);
    for (const BucketLayout::Member& member : bucket.members) {
      if (rank_ != 0) {
        tensors[member.parameter].copy_(place_of(member));
      }
    }
  }
}

void RankGroup::barrier() { group_->barrier()->wait(); }

void RankGroup::expect_as_on_rank_0(const std::string& what, const std::string& text) {
  if (store_ == nullptr) {
    return;
  }
  const std::string key = "text/" + std::to_string(texts_++);
  if (rank_ == 0) {
    store_->set(key, bytes_of_text(text));
    return;
  }
  const std::vector<uint8_t> bytes = store_->get(key);
  const std::string expected(bytes.begin(), bytes.end());
  TORCH_CHECK(text == expected, "data parallel: rank ", rank_, " has other ", what, " than rank 0: ", text, ", not ",
              expected);
}

std::shared_ptr<GradientBuckets> RankGroup::buckets_of(const std::vector<at::Tensor>& parameters) {
  const auto found = std::ranges::find_if(buckets_, [&](const auto& buckets) { return buckets->are_of(parameters); });
  if (found != buckets_.end()) {
    return *found;
  }
  if (buckets_.size() == kMaxBuckets) {
    buckets_.erase(buckets_.begin());
  }
  return buckets_.emplace_back(std::make_shared<GradientBuckets>(*this, parameters));
}

void RankGroup::expect_usable() const { TORCH_CHECK(broken_.empty(), broken_); }

void RankGroup::fail(const std::exception_ptr& error) {
  const std::string message = message_of(error);
  if (!is_of_connection(message)) {
    leave("raised: " + message);
    std::rethrow_exception(error);
  }
  leave_note(kLost);
  broken_ = "data parallel: rank " + std::to_string(rank_) + " of " + std::to_string(world_) +
            " cannot go on: " + notes_of_others() + "\nThe connection says: " + message.substr(0, message.find('\n'));
  close();
  TORCH_CHECK(false, broken_);
}

void RankGroup::leave(const std::string& reason) {
  if (broken_.empty()) {
    broken_ = "data parallel: rank " + std::to_string(rank_) + ", which this is, " + reason;
    leave_note(reason);
    close();
  }
}

void RankGroup::leave_note(const std::string& note) noexcept {
  if (store_ == nullptr) {
    return;
  }
  try {
    store_->set(key_of(rank_), bytes_of_text(note));
  } catch (const std::exception& lost) {  // rank 0, or torchrun's agent, has ended, and its store with it
    log(LogLevel::kInfo, "data parallel: the store is lost: " + one_line_message(lost));
  }
}

std::string RankGroup::notes_of_others() const {
  if (store_ == nullptr) {
    return "another rank does not answer: it has raised, ended, or hangs";
  }
  const auto end = std::chrono::steady_clock::now() + kTimeForNotes;
  std::vector<std::string> notes(static_cast<size_t>(world_));
  const auto ask = [&](int rank) {
    if (store_->check({key_of(rank)})) {
      const std::vector<uint8_t> bytes = store_->get(key_of(rank));
      notes[static_cast<size_t>(rank)].assign(bytes.begin(), bytes.end());
    }
  };
  try {
    for (bool misses = true; misses && std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(10ms)) {
      misses = false;
      for (int rank = 0; rank < world_; ++rank) {
        if (rank != rank_ && notes[static_cast<size_t>(rank)].empty()) {
          ask(rank);
          misses = misses || notes[static_cast<size_t>(rank)].empty();
        }
      }
    }
  } catch (const std::exception& lost) {
    return "the store, which rank 0 or torchrun's agent holds, does not answer (" + one_line_message(lost) + ")";
  }
  std::string reasons;
  for (int rank = 0; rank < world_; ++rank) {
    const std::string& note = notes[static_cast<size_t>(rank)];
    if (rank != rank_ && note != kLost) {
      reasons += (reasons.empty() ? "rank " : "; rank ") + std::to_string(rank) + " ";
      reasons += note.empty() ? "does not answer: it was killed, hangs, or is cut off" : note;
    }
  }
  return reasons.empty() ? "all ranks have lost a connection, and none has another reason" : reasons;
}

std::string RankGroup::key_of(int rank) const { return "note/" + std::to_string(rank); }

// The connections end with the group, so that other ranks learn of it at once.
void RankGroup::close() {
  c10d::unregister_process_group(name_);
  group_.reset();
  if (norms_ != nullptr) {
    c10d::unregister_process_group(name_of_norms_);
    norms_.reset();
  }
}

}  // namespace sconce
