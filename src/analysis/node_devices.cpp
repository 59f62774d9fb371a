#include "analysis/node_devices.h"

#include "ir/constant_operands.h"
#include "ir/memory_types.h"

#include <algorithm>
#include <optional>

namespace sconce {
namespace {

// Returns the tensor's device. One without an index is the current device of a run: not known.
std::optional<c10::Device> device_of(const Value& tensor) {
  const c10::IValue* constant = tensor.constant();
  const std::optional<c10::Device> device = constant != nullptr && constant->isTensor() && constant->toTensor().defined()
                                                ? std::optional(constant->toTensor().device())
                                            : tensor.facts() != nullptr ? tensor.facts()->device
                                                                        : std::nullopt;
  return device && (device->is_cpu() || device->has_index()) ? device : std::nullopt;
}

void add_device(NodeDevices& devices, const Value& value) {
  const c10::IValue* constant = value.constant();
  const bool is_none = (constant != nullptr && constant->isNone()) ||
                       (value.facts() != nullptr && value.facts()->defined == std::optional(false));
  if (is_none || !may_hold_tensors(value.type())) {
    return;
  }
  if (value.node()->opcode() == Opcode::kListConstruct) {
    for (const Value* element : value.node()->inputs()) {
      add_device(devices, *element);
    }
    return;
  }
  if (!is_tensor(value) && value.node()->schema() != nullptr && !value.node()->op().leaves_device) {
    // No operator puts the tensors of a list on a device that none of its operands has.
    for (const Value* input : value.node()->inputs()) {
      add_device(devices, *input);
    }
    return;
  }
  const std::optional<c10::Device> device = device_of(value);
  devices.are_all_known = devices.are_all_known && device.has_value();
  if (device && std::find(devices.known.begin(), devices.known.end(), *device) == devices.known.end()) {
    devices.known.push_back(*device);
  }
}

}  // namespace

NodeDevices devices_of(const Node& node) {
  NodeDevices devices;
  for (const Value* input : node.inputs()) {
    add_device(devices, *input);
  }
  for (const Value* output : node.outputs()) {
    // A list of results has no facts. No operator puts such tensors on a device that none of its operands has.
    if (is_tensor(*output) || devices.known.empty()) {
      add_device(devices, *output);
    }
  }
  return devices;
}

std::vector<c10::Device> devices_of(const Graph& graph) {
  std::vector<c10::Device> devices;
  for_each_node(graph.body(), [&](const Node* node) {
    for (const c10::Device device : devices_of(*node).known) {
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
        devices.push_back(device);
      }
    }
  });
  std::stable_partition(devices.begin(), devices.end(), [](c10::Device device) { return !device.is_cpu(); });
  return devices;
}

c10::Device main_device_of(const Graph& graph) {
  const std::vector<c10::Device> devices = devices_of(graph);
  return devices.empty() ? c10::Device(c10::kCPU) : devices.front();
}

}  // namespace sconce
