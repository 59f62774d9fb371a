#include "tools/sconce/train/checkpointer.h"

#include "tools/sconce/values/write_file.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/jit/serialization/export.h>

namespace sconce::cli {
namespace {

void save_model(const Training& training, bool trains, const ByteSink& sink) {
  Module module = training.module();
  if (!training.device().is_cpu()) {
    module = module.clone();
    module.to(at::kCPU);  // the file is read on any machine
  }
  const bool trained = module.script_module().is_training();
  module.train(trains);
  const auto back = c10::make_scope_exit([&] { module.train(trained); });
  torch::jit::ExportModule(module.script_module(), [&sink](const void* data, size_t bytes) {
    sink(static_cast<const char*>(data), bytes);
    return bytes;
  });
}

}  // namespace

void Checkpointer::keep_best(const Training& training, bool trains) {
  best_.clear();
  save_model(training, trains, [this](const char* data, size_t bytes) { best_.append(data, bytes); });
}

void Checkpointer::write_best() {
  if (!best_.empty()) {
    expect_room(folder_.best(), best_.size());
    write_file(folder_.best(), best_);
    best_ = {};
  }
}

void Checkpointer::write_checkpoint(const Training& training) const {
  const Checkpoint checkpoint = training.checkpoint();
  expect_room(folder_.checkpoint(), bytes_of(checkpoint));
  cli::write_checkpoint(checkpoint, folder_.checkpoint());
}

void Checkpointer::write_model(const Training& training, bool trains) const {
  write_file(folder_.model(), [&](const ByteSink& sink) { save_model(training, trains, sink); });
}

}  // namespace sconce::cli
