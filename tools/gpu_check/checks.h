// Checks and measurements on a GPU without LibTorch: sconce's driver layer, NVRTC, recordings.
#pragma once

#include "tests/simulated_driver/fake_driver.h"
#include "tools/gpu_check/gpu.h"

#include <nlohmann/json.hpp>

#include <span>

namespace sconce::gpu_check {

// Throws if a check fails, else returns what it found and measured.
struct Check {
  const char* name;
  nlohmann::json (*run)(Gpu& gpu);
  const char* help;
};
std::span<const Check> checks();

// Teaches the simulated driver the kernels of these checks, so that the checks run on it (--simulate).
void define_check_kernels(cuda::FakeDriver& driver);

}  // namespace sconce::gpu_check
