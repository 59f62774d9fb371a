#include "base/compiled_meta_kernels.h"

#include "base/opened_member.h"

#include <ATen/core/dispatch/OperatorEntry.h>

#include <algorithm>

namespace sconce {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::impl::AnnotatedKernel;
using c10::impl::OperatorEntry;

struct KernelsOfEntry {
  using Type = ska::flat_hash_map<DispatchKey, std::list<AnnotatedKernel>> OperatorEntry::*;
  friend Type member(KernelsOfEntry);
};
template struct Opened<KernelsOfEntry, &OperatorEntry::kernels_>;

// The type of the member cannot be named: so the function that reads it is made with it.
const OperatorEntry& entry_of(const c10::OperatorHandle& op);
template <auto kMember>
struct OpenedDefinition {
  friend const OperatorEntry& entry_of(const c10::OperatorHandle& op) { return (op.*kMember)->op; }
};
template struct OpenedDefinition<&c10::OperatorHandle::operatorDef_>;

namespace {

thread_local bool is_active_here = false;

c10::impl::LocalDispatchKeySet with_fake_key() {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = keys.included_.add(DispatchKey::Fake);
  keys.excluded_ = keys.excluded_.remove(DispatchKey::Fake);
  return keys;
}

bool runs_on_meta(DispatchKeySet keys, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const DispatchKey key = keys.highestPriorityTypeId();
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  return key == DispatchKey::Meta ||
         (key == DispatchKey::BackendSelect &&
          std::ranges::any_of(arguments, [](const auto& each) { return each.isDevice() && each.toDevice().is_meta(); }));
}

}  // namespace

CompiledMetaKernels::CompiledMetaKernels() : was_active_(is_active_here), include_(with_fake_key()) {
  is_active_here = true;
}
CompiledMetaKernels::~CompiledMetaKernels() { is_active_here = was_active_; }

bool CompiledMetaKernels::is_active() { return is_active_here; }

// A compiled kernel can be called unboxed. A kernel of Python's is boxed only. The newest kernel is first in the list.
void CompiledMetaKernels::run(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack& stack) {
  const DispatchKeySet rest = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  const auto& all = entry_of(op).*member(KernelsOfEntry());
  const auto kernels = runs_on_meta(rest, op, stack) ? all.find(DispatchKey::Meta) : all.end();
  if (kernels == all.end()) {
    op.redispatchBoxed(rest, &stack);
    return;
  }
  const auto compiled = std::ranges::find_if(kernels->second, [](const AnnotatedKernel& each) {
    return each.kernel.isValidUnboxed() || each.kernel.isValidSymUnboxed();
  });
  TORCH_CHECK_NOT_IMPLEMENTED(compiled != kernels->second.end(), op.schema().operator_name(),
                              " has no compiled meta kernel");
  compiled->kernel.callBoxed(op, DispatchKeySet(DispatchKey::Meta), &stack);
}

}  // namespace sconce
