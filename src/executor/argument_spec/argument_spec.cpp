#include "executor/argument_spec/argument_spec.h"

#include "analysis/memory/alias_sets.h"
#include "executor/argument_spec/attribute_memo.h"
#include "executor/argument_spec/writer.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>

namespace sconce {
namespace {

// Returns whether a value of the type can hold tensors that a spec covers.
bool may_hold_covered_tensors(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      // Whether it is None is part of the spec, whatever its type is.
      return true;
    case c10::TypeKind::ListType: return may_hold_covered_tensors(type->expectRef<c10::ListType>().getElementType());
    default: return holds_memory(type);
  }
}

// Returns whether the values of the type are numbers, strings or None.
bool is_constant_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType: return true;
    case c10::TypeKind::OptionalType: return is_constant_type(*type.expectRef<c10::OptionalType>().getElementType());
    default: return false;
  }
}

bool is_list_of_integers(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType &&
         type.expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::IntType;
}

// Collects sizes in the order in which SpecFacts makes symbols of them.
void collect_symbolic_sizes(const c10::IValue& value, std::vector<int64_t>& sizes) {
  const auto collect_all = [&](const auto& elements, size_t count) {
    if (count <= spec_words::kMaxElements) {
      for (const auto& element : elements) {
        collect_symbolic_sizes(element, sizes);
      }
    }
  };
  if (value.isTensor()) {
    const c10::TensorImpl& tensor = *value.unsafeToTensorImpl();
    if (value.toTensor().defined() && !is_exotic(tensor)) {
      std::copy_if(tensor.sizes().begin(), tensor.sizes().end(), std::back_inserter(sizes),
                   [](int64_t size) { return size != 1; });
    }
  } else if (value.isTuple()) {
    collect_all(value.toTupleRef().elements(), value.toTupleRef().size());
  } else if (value.isList()) {
    collect_all(value.toListRef(), value.toListRef().size());
  } else if (value.isGenericDict() && value.toGenericDict().size() <= spec_words::kMaxElements) {
    for (const auto& entry : value.toGenericDict()) {
      collect_symbolic_sizes(entry.key(), sizes);
      collect_symbolic_sizes(entry.value(), sizes);
    }
  }
}

}  // namespace

// Which memory the graph writes, and which attributes it assigns.
struct ArgumentSpecCreator::Changes {
  const AliasSets& aliases;
  const AssignedAttributes& assigned;
};

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
  const AssignedAttributes assigned(graph);
  const Changes changes{aliases, assigned};
  for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* input = graph.inputs()[i];
    if (input->type()->kind() == c10::TypeKind::ClassType) {
      sees_everything_ = collect_reads({input}, {.is_argument = true, .owner = i, .slot = 0}, changes) && sees_everything_;
    } else {
      if (may_hold_covered_tensors(input->type())) {
        values_.push_back(i);
      }
      writes_inputs_ = writes_inputs_ || aliases.may_be_written_within(*input);
    }
  }
  const auto parameter = std::ranges::find_if(tensors_, &AttributeRead::is_parameter);
  weight_ = parameter == tensors_.end() ? 0 : static_cast<size_t>(parameter - tensors_.begin());
}

ArgumentSpecCreator::~ArgumentSpecCreator() = default;

const void* ArgumentSpecCreator::weight_in(std::span<const c10::IValue* const> slots) const {
  if (tensors_.empty()) {
    return nullptr;
  }
  const c10::IValue& weight = slots[tensors_[weight_].object][tensors_[weight_].slot];
  return weight.isTensor() ? weight.unsafeToTensorImpl() : nullptr;
}

// Collects the reads of an object. `object`: the values that hold it; one attribute may be read in many places.
// Returns false if the object goes where its attributes cannot be followed.
bool ArgumentSpecCreator::collect_reads(const std::vector<const Value*>& object, ObjectRead read, const Changes& changes) {
  const auto type = object.front()->type()->cast<c10::ClassType>();
  bool followed = type != nullptr;
  std::map<uint32_t, const Node*> attributes;
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
      } else {
        attributes.emplace(static_cast<uint32_t>(*slot), &user);
      }
    }
  }
  const auto index = static_cast<uint32_t>(objects_.size());
  const size_t attributes_before = attribute_count();
  objects_.push_back(read);
  for (const auto& [slot, get] : attributes) {
    collect_read(*get, {index, slot}, changes);
  }
  for (const auto& [slot, values] : objects) {
    followed = collect_reads(values, {.is_argument = false, .owner = index, .slot = slot}, changes) && followed;
  }
  if (attribute_count() == attributes_before) {
    objects_.resize(index);  // nothing of it is read
  }
  return followed;
}

void ArgumentSpecCreator::collect_read(const Node& get, AttributeRead read, const Changes& changes) {
  const c10::TypePtr type = get.input(0)->type()->expectRef<c10::ClassType>().getAttribute(read.slot);
  if (is_constant_type(*type) || is_list_of_integers(*type)) {
    if (!changes.assigned.contains(get) && !changes.aliases.may_be_written_within(*get.output())) {
      constants_.push_back(read);
    }
  } else if (type->kind() == c10::TypeKind::TensorType && !changes.assigned.names(get)) {
    const auto& object = get.input(0)->type()->expectRef<c10::ClassType>();
    read.is_parameter = object.is_module() && object.is_parameter(read.slot);
    tensors_.push_back(read);
  } else if (may_hold_covered_tensors(type)) {
    others_.push_back(read);
  }
}

// Finds the slots of each object.
void ArgumentSpecCreator::find_slots(std::span<const c10::IValue> arguments, Slots& slots) const {
  slots.reserve(objects_.size());
  for (const ObjectRead& read : objects_) {
    const c10::IValue& object = read.is_argument ? arguments[read.owner] : slots[read.owner][read.slot];
    slots.push_back(object.toObjectRef().slots().data());
  }
}

// Returns `found` with the slots of the attributes added. `slots`: those of each object.
std::vector<const c10::IValue*> ArgumentSpecCreator::find_all(const std::vector<AttributeRead>& reads,
                                                              std::span<const c10::IValue* const> slots,
                                                              std::vector<const c10::IValue*> found) {
  for (const AttributeRead& read : reads) {
    found.push_back(&slots[read.object][read.slot]);
  }
  return found;
}

std::vector<int64_t> ArgumentSpecCreator::symbolic_sizes(std::span<const c10::IValue> arguments) const {
  Slots slots;
  find_slots(arguments, slots);
  std::vector<int64_t> sizes;
  for (const AttributeRead& read : tensors_) {
    if (!read.is_parameter) {
      collect_symbolic_sizes(slots[read.object][read.slot], sizes);
    }
  }
  for (const uint32_t argument : values_) {
    collect_symbolic_sizes(arguments[argument], sizes);
  }
  for (const c10::IValue* attribute : find_all(others_, slots)) {
    collect_symbolic_sizes(*attribute, sizes);
  }
  return sizes;
}

void ArgumentSpecCreator::create(std::span<const c10::IValue> arguments, ArgumentSpec& spec) const {
  SpecWriter writer(spec);
  const AttributeMemo* memo = memos_->newest.load(std::memory_order_acquire);
  Slots found;
  std::span<const c10::IValue* const> slots;  // the slots of each object
  if (memo != nullptr && memo->holds(arguments)) {
    writer.write_attributes(*memo);
    slots = memo->slots();
  } else {
    find_slots(arguments, found);
    slots = {found.data(), found.size()};
    writer.write_values(tensors_.size(),
                        [&](size_t i) -> const c10::IValue& { return slots[tensors_[i].object][tensors_[i].slot]; });
    for (const AttributeRead& read : tensors_) {
      if (read.is_parameter) {
        writer.write_sizes(slots[read.object][read.slot]);
      }
    }
    for (const AttributeRead& read : constants_) {
      writer.write_constant(slots[read.object][read.slot]);
    }
    if (!tensors_.empty() || !constants_.empty()) {
      writer.end_attributes();
    }
  }
  writer.write_values(values_.size(), [&](size_t i) -> const c10::IValue& { return arguments[values_[i]]; });
  for (const AttributeRead& read : others_) {
    writer.write_value(slots[read.object][read.slot]);
  }
  if (writes_inputs_) {
    static thread_local std::vector<const c10::IValue*> attributes;  // keeps its memory from call to call
    attributes.clear();
    attributes = find_all(tensors_, slots, std::move(attributes));
    attributes = find_all(others_, slots, std::move(attributes));
    writer.write_shared_storage(arguments, attributes);
  }
  writer.finish();
  spec.weight_ = weight_in(slots);
  spec.requires_grad_ = spec.requires_grad_ || !sees_everything_;
  if (spec.memo_ == 0 && writer.attribute_words() > 0) [[unlikely]] {
    remember(arguments, slots, spec.words().subspan(spec_words::kStateWords, writer.attribute_words()));
  }
}

// `words`: those of the attributes.
void ArgumentSpecCreator::remember(std::span<const c10::IValue> arguments, std::span<const c10::IValue* const> slots,
                                   std::span<const uint64_t> words) const {
  if (memos_->attempts.load(std::memory_order_relaxed) >= Memos::kMax || memos_->attempts.fetch_add(1) >= Memos::kMax) {
    return;
  }
  std::vector<FoundObject> objects;
  for (const ObjectRead& read : objects_) {
    const c10::IValue* slot = read.is_argument ? nullptr : &slots[read.owner][read.slot];
    const c10::IValue& object = slot == nullptr ? arguments[read.owner] : *slot;
    objects.push_back({slot, slot == nullptr ? read.owner : 0, &object.toObjectRef()});
  }
  auto memo = AttributeMemo::make(objects, find_all(tensors_, slots), find_all(constants_, slots), words);
  if (memo) {
    const std::lock_guard<std::mutex> lock(memos_->mutex);
    // Kept first: a memo that is published and cannot be kept would be freed under its readers.
    memos_->all.push_back(std::move(memo));
    memos_->newest.store(memos_->all.back().get(), std::memory_order_release);
  }
}

}  // namespace sconce
