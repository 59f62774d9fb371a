#include "tools/sconce/values/autocast_region.h"

#include <ATen/autocast_mode.h>

#include <utility>

namespace sconce::cli {
namespace {

std::optional<c10::ScalarType> dtype_of_calls;

class RegionPeer final : public peers::Peer {
 public:
  explicit RegionPeer(std::unique_ptr<Peer> peer) : peer_(std::move(peer)) {}

  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override {
    return peer_->prepare(module, method);
  }
  std::optional<std::string> why_not_training() const override { return peer_->why_not_training(); }
  std::unique_ptr<Peer::Session> session() override { return std::make_unique<RegionSession>(peer_->session()); }

 private:
  class RegionSession final : public Peer::Session {
   public:
    explicit RegionSession(std::unique_ptr<Session> session) : session_(std::move(session)) {}
    c10::IValue run(std::vector<c10::IValue> arguments) override {
      const AutocastRegion region;
      return session_->run(std::move(arguments));
    }

   private:
    const std::unique_ptr<Session> session_;
  };

  const std::unique_ptr<Peer> peer_;
};

}  // namespace

void set_autocast_of_calls(std::optional<c10::ScalarType> dtype) { dtype_of_calls = dtype; }
std::optional<c10::ScalarType> autocast_of_calls() { return dtype_of_calls; }

std::optional<double> tolerance_of_autocast() { return dtype_of_calls ? std::optional(0.03) : std::nullopt; }

AutocastRegion::AutocastRegion(c10::DeviceType device) : device_(device) {
  if (dtype_of_calls) {
    dtype_before_ = at::autocast::get_autocast_dtype(device_);
    at::autocast::set_autocast_dtype(device_, *dtype_of_calls);
    at::autocast::set_autocast_enabled(device_, true);
  }
}

AutocastRegion::~AutocastRegion() {
  if (dtype_before_) {
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::set_autocast_dtype(device_, *dtype_before_);
    at::autocast::clear_cache();
  }
}

std::unique_ptr<peers::Peer> with_autocast_of_calls(std::unique_ptr<peers::Peer> peer) {
  return dtype_of_calls ? std::make_unique<RegionPeer>(std::move(peer)) : std::move(peer);
}

}  // namespace sconce::cli
