// A library of operators and a class, as a client registers them: they count, and read a setting.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>

namespace sconce::clients {

// What calls of the library's operators change and read. There is one in the process: each world puts its own there.
struct LibraryState {
  int64_t ticks = 0;    // calls of tick, counted, own_gradient
  int64_t numbers = 0;  // calls of number
  double setting = 1;   // that scaled and number read
};
LibraryState& library_state();

// A class whose objects are attributes of modules.
struct Counter : torch::CustomClassHolder {
  int64_t count = 0;
  int64_t next() { return ++count; }
};

// Finds `clients` and `profiler` in scripts, which a script in Python reaches by torch.ops.
std::shared_ptr<torch::jit::Resolver> library_resolver();

// ---- the operators, as C++ calls them

void tick(const at::Tensor& x);                // composed, without results
at::Tensor scaled(const at::Tensor& x);        // composed, by the setting
at::Tensor counted(const at::Tensor& x);       // has a kernel for the CPU
at::Tensor own_gradient(const at::Tensor& x);  // has a kernel for autograd
at::Tensor pure(const at::Tensor& x);          // computes, as its tag says
double number(const at::Tensor& x);

}  // namespace sconce::clients
