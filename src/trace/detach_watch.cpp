#include "trace/detach_watch.h"

#include "trace/tracer.h"

#include <memory>
#include <string_view>

namespace sconce {
namespace {

std::unique_ptr<at::ObserverContext> note_call(const at::RecordFunction& call) {
  Tracer* tracer = TracingScope::current();
  if (tracer != nullptr && std::string_view(call.name()) == "aten::detach_" && call.inputs()[0].isTensor()) {
    tracer->note_detached(call.inputs()[0].toTensor());
  }
  return nullptr;
}

}  // namespace

DetachWatch::DetachWatch()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&note_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {}

DetachWatch::~DetachWatch() { at::removeCallback(handle_); }

}  // namespace sconce
