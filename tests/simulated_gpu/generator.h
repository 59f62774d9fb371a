// The random number generator of the simulated GPU.
#pragma once

#include "plan/device/device.h"

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>

namespace sconce::testing {

// A generator as LibTorch's for a GPU: a seed and an offset.
class SimulatedGenerator final : public c10::GeneratorImpl {
 public:
  SimulatedGenerator() : GeneratorImpl(c10::Device(c10::kCUDA, 0), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  // Returns the generator of the process.
  static const at::Generator& of_process();

  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  void set_offset(uint64_t offset) override { state_.offset = offset; }
  uint64_t get_offset() const override { return state_.offset; }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  c10::DeviceType device_type() const { return c10::kCUDA; }

 private:
  SimulatedGenerator* clone_impl() const override;

  RandomState state_{c10::default_rng_seed_val, 0};
};

}  // namespace sconce::testing
