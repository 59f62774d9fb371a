#include "tests/simulated_gpu/generator.h"

#include <ATen/ATen.h>

#include <cstring>

namespace sconce::testing {

const at::Generator& SimulatedGenerator::of_process() {
  static const auto* const generator = new at::Generator(at::make_generator<SimulatedGenerator>());
  return *generator;
}

uint64_t SimulatedGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void SimulatedGenerator::set_state(const c10::TensorImpl& new_state) {
  TORCH_CHECK(static_cast<size_t>(new_state.numel()) == sizeof state_, "a state of ", new_state.numel(), " bytes");
  std::memcpy(&state_, new_state.data(), sizeof state_);
}

c10::intrusive_ptr<c10::TensorImpl> SimulatedGenerator::get_state() const {
  const at::Tensor state = at::empty({static_cast<int64_t>(sizeof state_)}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), &state_, sizeof state_);
  return state.getIntrusivePtr();
}

SimulatedGenerator* SimulatedGenerator::clone_impl() const {
  auto* const copy = new SimulatedGenerator();
  copy->state_ = state_;
  return copy;
}

}  // namespace sconce::testing
