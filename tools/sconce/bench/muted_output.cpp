#include "tools/sconce/bench/muted_output.h"

#include <torch/csrc/jit/runtime/print_handler.h>

namespace sconce::cli {
namespace {

// A function without state, as LibTorch's handler must be.
std::atomic<size_t> prints = 0;

void count_print(const std::string& /*text*/) { prints.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

MutedOutput::MutedOutput() : previous_print_(torch::jit::getPrintHandler()) {
  prints = 0;
  torch::jit::setPrintHandler(count_print);
}

MutedOutput::~MutedOutput() { torch::jit::setPrintHandler(previous_print_); }

size_t MutedOutput::count() const { return prints.load(std::memory_order_relaxed) + warnings_.count(); }

}  // namespace sconce::cli
