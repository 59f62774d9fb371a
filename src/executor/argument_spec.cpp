#include "executor/argument_spec.h"

#include "ir/alias_sets.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace sconce {
namespace {

// ---- the words ------------------------------------------------------------------------------------------------------

enum Kind : uint64_t { kNone = 0, kUndefined = 1, kPlain = 2, kExotic = 3 };
constexpr int kDtypeShift = 2;
constexpr int kDeviceTypeShift = 8;
constexpr int kDeviceIndexShift = 13;
constexpr int kRankShift = 21;
constexpr int kRequiresGradShift = 27;
constexpr int kStrideClassShift = 28;
constexpr int kOnesShift = 31;
constexpr size_t kMaxRank = 16;
// Lengths and groups: no tensor's word has its highest bits set.
constexpr uint64_t kLengthTag = uint64_t{1} << 62;
constexpr uint64_t kSharedStorageTag = uint64_t{1} << 63;

// The key set of an ordinary strided tensor of the device, as TensorImpl's constructor puts it together.
c10::DispatchKeySet plain_keys(c10::DispatchKey backend_key) {
  const c10::DispatchKeySet backend(backend_key);
  const c10::BackendComponent component = backend.highestBackendKey();
  return backend | c10::inplace_or_view_ks | c10::getAutogradRelatedKeySetFromBackend(component) |
         c10::getAutocastRelatedKeySetFromBackend(component);
}

const c10::DispatchKeySet kPlainCpu = plain_keys(c10::DispatchKey::CPU);
const c10::DispatchKeySet kPlainCuda = plain_keys(c10::DispatchKey::CUDA);

bool is_plain(c10::DispatchKeySet keys) {
  // Inference tensors lack the keys of autograd.
  constexpr c10::DispatchKeySet kAutograd = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys == kPlainCpu || keys == kPlainCuda || keys == (kPlainCpu - kAutograd) || keys == (kPlainCuda - kAutograd);
}

uint64_t device_bits(c10::Device device) {
  return static_cast<uint64_t>(device.type()) << kDeviceTypeShift |
         static_cast<uint64_t>(static_cast<uint8_t>(device.index() + 1)) << kDeviceIndexShift;
}

// Of a tensor that is not contiguous.
StrideClass stride_class_of(const c10::TensorImpl& tensor) {
  if (tensor.is_strides_like_channels_last()) {
    return StrideClass::kChannelsLast;
  }
  if (tensor.is_strides_like_channels_last_3d()) {
    return StrideClass::kChannelsLast3d;
  }
  return tensor.is_non_overlapping_and_dense() ? StrideClass::kDense : StrideClass::kOther;
}

class SpecWriter {
 public:
  SpecWriter(ArgumentSpec& spec, ArgumentSpecCreator::Detail detail)
      : spec_(spec), words_(spec.words), with_shapes_(detail == ArgumentSpecCreator::Detail::kShapes) {
    words_.clear();
    spec.requires_grad = spec.exotic = false;
  }

  void write_state() {
    const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
    const at::Context& context = at::globalContext();
    uint64_t state = 0;
    state |= static_cast<uint64_t>(autograd.get_grad_mode());
    state |= static_cast<uint64_t>(autograd.get_inference_mode()) << 1;
    state |= static_cast<uint64_t>(context.deterministicAlgorithms()) << 2;
    state |= static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly()) << 3;
    state |= static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8;
    words_.push_back(state);
    const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    words_.push_back(keys.included_.raw_repr());
    words_.push_back(keys.excluded_.raw_repr());
  }

  void write_value(const c10::IValue& value) {
    if (value.isTensor()) [[likely]] {
      write_tensor(*value.unsafeToTensorImpl());
    } else if (value.isNone()) {
      words_.push_back(kNone);
    } else if (value.isTuple()) {
      for (const c10::IValue& element : value.toTupleRef().elements()) {
        write_value(element);
      }
    } else if (value.isList()) {
      const auto list = value.toListRef();
      words_.push_back(kLengthTag | list.size());
      // A list of numbers has only its length.
      if (!list.empty() && !list[0].isScalar() && !list[0].isString()) {
        for (const c10::IValue& element : list) {
          write_value(element);
        }
      }
    } else if (value.isGenericDict()) {
      const auto dict = value.toGenericDict();
      words_.push_back(kLengthTag | dict.size());
      for (const auto& entry : dict) {
        write_value(entry.value());
      }
    } else if (value.isObject() || value.isFuture() || value.isPtrType()) {
      // Strings are pointers too and hold no tensor.
      spec_.requires_grad = spec_.requires_grad || !value.isString();
    }
  }

  void finish() {
    // Four chains of multiplications side by side (the constants are those of MurmurHash64A and SplitMix64).
    constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
    uint64_t lanes[4] = {words_.size(), 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb};
    size_t i = 0;
    for (; i + 4 <= words_.size(); i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) {
        lanes[lane] = (lanes[lane] ^ words_[i + lane]) * kMultiplier;
        lanes[lane] ^= lanes[lane] >> 29;
      }
    }
    for (; i < words_.size(); ++i) {
      lanes[0] = (lanes[0] ^ words_[i]) * kMultiplier;
      lanes[0] ^= lanes[0] >> 29;
    }
    uint64_t hash = lanes[0];
    for (size_t lane = 1; lane < 4; ++lane) {
      hash = (hash ^ lanes[lane]) * kMultiplier;
      hash ^= hash >> 31;
    }
    spec_.hash = hash;
  }

  void write_shared_storage(std::span<const c10::IValue> arguments) {
    std::vector<const void*> storages;
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor() && argument.toTensor().defined() && argument.toTensor().has_storage()) {
        const void* storage = argument.toTensor().storage().unsafeGetStorageImpl();
        const auto first = std::find(storages.begin(), storages.end(), storage);
        if (first != storages.end()) {
          words_.push_back(kSharedStorageTag | static_cast<uint64_t>(first - storages.begin()) << 16 | storages.size());
        }
        storages.push_back(storage);
      }
    }
  }

 private:
  // A model's attributes are hundreds of tensors on each call: the ordinary tensor is the fast path, every instruction of
  // it counts.
  void write_tensor(const c10::TensorImpl& tensor) {
    const c10::DispatchKeySet keys = tensor.key_set();
    // Read directly: the virtual calls that TensorImpl offers cost more than the rest of the word.
    const auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
    const bool requires_grad = autograd != nullptr && (autograd->requires_grad_ || autograd->grad_fn_ != nullptr);
    const bool is_dual = autograd != nullptr && autograd->fw_grad_ != nullptr;
    const c10::IntArrayRef sizes = tensor.sizes();
    if (keys != kPlainCpu || is_dual || sizes.size() > kMaxRank) [[unlikely]] {
      return write_unusual_tensor(tensor, requires_grad, is_dual);
    }
    write_plain_tensor(tensor, sizes, requires_grad, static_cast<uint64_t>(c10::DeviceType::CPU) << kDeviceTypeShift);
  }

  [[gnu::noinline]] void write_unusual_tensor(const c10::TensorImpl& tensor, bool requires_grad, bool is_dual) {
    if (&tensor == c10::UndefinedTensorImpl::singleton()) {
      words_.push_back(kUndefined);
      return;
    }
    const c10::DispatchKeySet keys = tensor.key_set();
    if (is_plain(keys) && !is_dual && tensor.dim() <= static_cast<int64_t>(kMaxRank)) {
      return write_plain_tensor(tensor, tensor.sizes(), requires_grad, device_bits(tensor.device()));
    }
    spec_.requires_grad = spec_.requires_grad || requires_grad || is_dual;
    spec_.exotic = true;
    words_.push_back(kExotic | static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype())) << kDtypeShift |
                     device_bits(tensor.device()) | static_cast<uint64_t>(requires_grad) << kRequiresGradShift);
    words_.push_back(keys.raw_repr());
  }

  void write_plain_tensor(const c10::TensorImpl& tensor, c10::IntArrayRef sizes, bool requires_grad, uint64_t device) {
    const StrideClass strides = tensor.is_contiguous() ? StrideClass::kContiguous : stride_class_of(tensor);
    uint64_t ones = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      ones |= static_cast<uint64_t>(sizes[i] == 1) << i;
    }
    spec_.requires_grad = spec_.requires_grad || requires_grad;
    words_.push_back(kPlain | static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype())) << kDtypeShift | device |
                     static_cast<uint64_t>(sizes.size()) << kRankShift |
                     static_cast<uint64_t>(requires_grad) << kRequiresGradShift |
                     static_cast<uint64_t>(strides) << kStrideClassShift | ones << kOnesShift);
    if (with_shapes_) {
      words_.insert(words_.end(), sizes.begin(), sizes.end());
      words_.insert(words_.end(), tensor.strides().begin(), tensor.strides().end());
    }
  }

  ArgumentSpec& spec_;
  std::vector<uint64_t>& words_;
  bool with_shapes_;
};

// Whether a value of the type can hold tensors that a spec sees.
bool may_hold_tensors(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      // Whether it is None is part of the spec, whatever it holds.
      return true;
    case c10::TypeKind::ListType:
      return may_hold_tensors(type->expectRef<c10::ListType>().getElementType());
    default:
      return holds_memory(type);
  }
}

}  // namespace

// ---- the creator ----------------------------------------------------------------------------------------------------

ArgumentSpecCreator::ArgumentSpecCreator(const Graph& graph) {
  const AliasSets aliases(graph);
  for (const Value* input : graph.inputs()) {
    Input& entry = inputs_.emplace_back();
    entry.is_object = input->type()->kind() == c10::TypeKind::ClassType;
    entry.holds_tensors = !entry.is_object && may_hold_tensors(input->type());
    if (entry.is_object) {
      sees_everything_ = collect_reads(*input, entry.reads) && sees_everything_;
    } else {
      writes_inputs_ = writes_inputs_ || (input->type()->kind() == c10::TypeKind::TensorType && aliases.may_be_written(*input));
    }
  }
}

// False when the object goes where its attributes cannot be followed.
bool ArgumentSpecCreator::collect_reads(const Value& object, ObjectReads& reads) {
  const auto type = object.type()->cast<c10::ClassType>();
  std::map<size_t, std::vector<const Value*>> objects;
  bool followed = type != nullptr;
  for (const Use& use : object.uses()) {
    const Node& user = *use.user;
    if (user.kind() == prim::SetAttr && use.index == 0) {
      continue;
    }
    const auto slot = user.kind() == prim::GetAttr && type ? type->findAttributeSlot(user.attribute_as<std::string>(attr::kName))
                                                            : std::nullopt;
    if (!slot) {
      followed = false;
    } else if (user.output()->type()->kind() == c10::TypeKind::ClassType) {
      objects[*slot].push_back(user.output());
    } else if (may_hold_tensors(user.output()->type()) &&
               std::find(reads.tensors.begin(), reads.tensors.end(), *slot) == reads.tensors.end()) {
      reads.tensors.push_back(*slot);
      ++attribute_count_;
    }
  }
  std::sort(reads.tensors.begin(), reads.tensors.end());
  for (const auto& [slot, values] : objects) {
    // One attribute may be read at many places; they read one object.
    ObjectReads nested;
    for (const Value* value : values) {
      followed = collect_reads(*value, nested) && followed;
    }
    reads.objects.emplace_back(slot, std::move(nested));
  }
  return followed;
}

void ArgumentSpecCreator::create(std::span<const c10::IValue> arguments, Detail detail, ArgumentSpec& spec) const {
  SpecWriter writer(spec, detail);
  writer.write_state();
  const auto write_object = [&writer](const auto& self, const c10::ivalue::Object& object, const ObjectReads& reads) -> void {
    const auto& slots = object.slots();
    for (const size_t slot : reads.tensors) {
      writer.write_value(slots[slot]);
    }
    for (const auto& [slot, nested] : reads.objects) {
      self(self, slots[slot].toObjectRef(), nested);
    }
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is_object) {
      write_object(write_object, arguments[i].toObjectRef(), inputs_[i].reads);
    } else if (inputs_[i].holds_tensors) {
      writer.write_value(arguments[i]);
    }
  }
  if (writes_inputs_) {
    writer.write_shared_storage(arguments);
  }
  writer.finish();
  spec.requires_grad = spec.requires_grad || !sees_everything_;
}

// ---- in words -------------------------------------------------------------------------------------------------------

std::string describe_spec(std::span<const uint64_t> words) {
  std::ostringstream out;
  out << ((words[0] & 1) != 0 ? "grad mode" : "no grad") << ((words[0] & 2) != 0 ? ", inference mode" : "")
      << ((words[0] & 4) != 0 ? ", deterministic" : "");
  // The same description again and again is counted.
  std::string previous;
  size_t repeats = 0;
  const auto flush = [&] {
    if (repeats > 0) {
      out << "; " << previous << (repeats > 1 ? " x" + std::to_string(repeats) : "");
    }
    repeats = 0;
  };
  for (size_t i = 3; i < words.size(); ++i) {
    const uint64_t word = words[i];
    std::ostringstream item;
    if ((word & kSharedStorageTag) != 0) {
      item << "argument " << (word & 0xffff) << " shares storage with " << ((word >> 16) & 0xffff);
    } else if ((word & kLengthTag) != 0) {
      item << "length " << (word & ~kLengthTag);
    } else if ((word & 3) == kNone) {
      item << "None";
    } else if ((word & 3) == kUndefined) {
      item << "undefined";
    } else {
      item << c10::toString(static_cast<c10::ScalarType>((word >> kDtypeShift) & 0x3f));
      const size_t rank = (word >> kRankShift) & 0x3f;
      item << "(";
      for (size_t dim = 0; dim < rank; ++dim) {
        item << (dim == 0 ? "" : ", ") << (((word >> (kOnesShift + dim)) & 1) != 0 ? "1" : "*");
      }
      item << ")";
      static constexpr const char* kClasses[] = {" strided", "", " channels_last", " channels_last_3d", " permuted"};
      item << kClasses[std::min<uint64_t>((word >> kStrideClassShift) & 7, 4)];
      if (((word >> kRequiresGradShift) & 1) != 0) {
        item << " requires_grad";
      }
      const auto device = static_cast<c10::DeviceType>((word >> kDeviceTypeShift) & 0x1f);
      if (device != c10::kCPU) {
        item << " " << c10::DeviceTypeName(device, true) << ":" << static_cast<int>((word >> kDeviceIndexShift) & 0xff) - 1;
      }
      if ((word & 3) == kExotic) {
        item << " exotic";
        ++i;  // its key set
      }
    }
    if (item.str() != previous) {
      flush();
      previous = item.str();
    }
    ++repeats;
  }
  flush();
  return out.str();
}

}  // namespace sconce
