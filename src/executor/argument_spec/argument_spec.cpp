#include "executor/argument_spec/argument_spec.h"

#include "analysis/alias_sets.h"
#include "executor/argument_spec/attribute_memo.h"
#include "executor/argument_spec/writer.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace sconce {
namespace {

// Returns whether a value of the type can hold tensors that a spec covers.
bool may_hold_tensors(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      // Whether it is None is part of the spec, whatever its type is.
      return true;
    case c10::TypeKind::ListType: return may_hold_tensors(type->expectRef<c10::ListType>().getElementType());
    default: return holds_memory(type);
  }
}

}  // namespace

// Memos are read without a lock, so a published memo lives as long as the creator. Their number is therefore limited.
struct ArgumentSpecCreator::Memos {
  static constexpr size_t kMax = 32;
  std::atomic<const AttributeMemo*> newest{nullptr};
  std::atomic<size_t> attempts{0};
  std::mutex mutex;
  std::vector<std::unique_ptr<const AttributeMemo>> all;
};

ArgumentSpecCreator::ArgumentSpecCreator(const Graph& graph) : memos_(std::make_unique<Memos>()) {
  const AliasSets aliases(graph);
  for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* input = graph.inputs()[i];
    if (input->type()->kind() == c10::TypeKind::ClassType) {
      sees_everything_ = collect_reads({input}, {.is_argument = true, .owner = i, .slot = 0}) && sees_everything_;
    } else {
      if (may_hold_tensors(input->type())) {
        values_.push_back(i);
      }
      writes_inputs_ = writes_inputs_ || aliases.may_be_written_within(*input);
    }
  }
}

ArgumentSpecCreator::~ArgumentSpecCreator() = default;

// Collects the reads of an object. `object`: the values that hold it; one attribute may be read in many places.
// Returns false if the object goes where its attributes cannot be followed.
bool ArgumentSpecCreator::collect_reads(const std::vector<const Value*>& object, ObjectRead read) {
  const auto type = object.front()->type()->cast<c10::ClassType>();
  bool followed = type != nullptr;
  std::vector<uint32_t> slots;
  std::map<uint32_t, std::vector<const Value*>> objects;
  for (const Value* value : object) {
    for (const Use& use : value->uses()) {
      const Node& user = *use.user;
      if (user.kind() == prim::SetAttr && use.index == 0) {
        continue;
      }
      const auto slot = user.kind() == prim::GetAttr && type
                            ? type->findAttributeSlot(user.attribute_as<std::string>(attr::kName))
                            : std::nullopt;
      if (!slot) {
        followed = false;
      } else if (user.output()->type()->kind() == c10::TypeKind::ClassType) {
        objects[static_cast<uint32_t>(*slot)].push_back(user.output());
      } else if (may_hold_tensors(user.output()->type())) {
        slots.push_back(static_cast<uint32_t>(*slot));
      }
    }
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  const auto index = static_cast<uint32_t>(objects_.size());
  objects_.push_back(read);
  for (const uint32_t slot : slots) {
    const bool is_tensor = type->getAttribute(slot)->kind() == c10::TypeKind::TensorType;
    (is_tensor ? tensors_ : others_).push_back({index, slot});
  }
  for (const auto& [slot, values] : objects) {
    followed = collect_reads(values, {.is_argument = false, .owner = index, .slot = slot}) && followed;
  }
  if (slots.empty() && objects_.size() == index + 1) {
    objects_.pop_back();  // nothing of it is read
  }
  return followed;
}

void ArgumentSpecCreator::create(std::span<const c10::IValue> arguments, Detail detail, ArgumentSpec& spec) const {
  SpecWriter writer(spec, detail == Detail::kShapes);
  const AttributeMemo* memo = detail == Detail::kRanks ? memos_->newest.load(std::memory_order_acquire) : nullptr;
  c10::SmallVector<const c10::IValue*, 64> found;
  std::span<const c10::IValue* const> slots;  // the slots of each object
  if (memo != nullptr && memo->holds(arguments)) {
    writer.write_attributes(*memo);
    slots = memo->slots();
  } else {
    found.reserve(objects_.size());
    for (const ObjectRead& read : objects_) {
      const c10::IValue& object = read.is_argument ? arguments[read.owner] : found[read.owner][read.slot];
      found.push_back(object.toObjectRef().slots().data());
    }
    slots = {found.data(), found.size()};
    writer.write_values(tensors_.size(),
                        [&](size_t i) -> const c10::IValue& { return slots[tensors_[i].object][tensors_[i].slot]; });
    if (!tensors_.empty()) {
      writer.end_attributes();
    }
  }
  writer.write_values(values_.size(), [&](size_t i) -> const c10::IValue& { return arguments[values_[i]]; });
  for (const AttributeRead& read : others_) {
    writer.write_value(slots[read.object][read.slot]);
  }
  if (writes_inputs_) {
    writer.write_shared_storage(arguments);
  }
  writer.finish();
  spec.requires_grad_ = spec.requires_grad_ || !sees_everything_;
  if (spec.memo_ == 0 && detail == Detail::kRanks && !tensors_.empty()) [[unlikely]] {
    remember(arguments, slots, spec);
  }
}

void ArgumentSpecCreator::remember(std::span<const c10::IValue> arguments, std::span<const c10::IValue* const> slots,
                                   const ArgumentSpec& spec) const {
  if (memos_->attempts.load(std::memory_order_relaxed) >= Memos::kMax || memos_->attempts.fetch_add(1) >= Memos::kMax) {
    return;
  }
  std::vector<FoundObject> objects;
  for (const ObjectRead& read : objects_) {
    const c10::IValue* slot = read.is_argument ? nullptr : &slots[read.owner][read.slot];
    const c10::IValue& object = slot == nullptr ? arguments[read.owner] : *slot;
    objects.push_back({slot, slot == nullptr ? read.owner : 0, &object.toObjectRef()});
  }
  std::vector<const c10::IValue*> attributes;
  for (const AttributeRead& read : tensors_) {
    attributes.push_back(&slots[read.object][read.slot]);
  }
  const std::span<const uint64_t> words = spec.words().subspan(spec_words::kStateWords);
  auto memo = AttributeMemo::make(objects, attributes, words.first(std::min(attributes.size(), words.size())));
  if (memo) {
    const std::lock_guard<std::mutex> lock(memos_->mutex);
    // Kept first: a memo that is published and cannot be kept would be freed under its readers.
    memos_->all.push_back(std::move(memo));
    memos_->newest.store(memos_->all.back().get(), std::memory_order_release);
  }
}

}  // namespace sconce
