// StepTraits: what running a node asks of the host and of the device, known before it runs.
#pragma once

#include "ir/graph.h"

#include <sconce/explanation.h>

#include <c10/core/Device.h>

#include <optional>

namespace sconce {

struct StepTraits {
  bool computes = false;    // computes, or at least returns, tensors
  bool random = false;      // draws random numbers
  bool writes = false;      // writes memory that other values may see
  bool reads_host = false;  // copies elements of a tensor to the host
  // Why a capture (a CUDA graph) cannot hold the node; absent if it can.
  std::optional<NotRecordable> not_recordable;
};

// Returns the traits of the node without its blocks, from its operator's record and its facts. Captures are on `captured`.
StepTraits traits_of(const Node& node, c10::Device captured);

}  // namespace sconce
