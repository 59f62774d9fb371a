#include "executor/argument_spec/writer.h"

#include "base/autocast.h"
#include "base/call_watch.h"
#include "base/plain_keys.h"
#include "base/storage_of.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace sconce {

using namespace spec_words;

namespace {

uint64_t device_bits(c10::Device device) {
  return kDeviceType.with(static_cast<uint64_t>(device.type())) |
         kDeviceIndex.with(static_cast<uint8_t>(device.index() + 1));
}

StrideClass stride_class_of(uint64_t flags) {
  if ((flags & tensor_traits::kContiguous) != 0) {
    return StrideClass::kContiguous;
  }
  if ((flags & tensor_traits::kChannelsLast) != 0) {
    return StrideClass::kChannelsLast;
  }
  if ((flags & tensor_traits::kChannelsLast3d) != 0) {
    return StrideClass::kChannelsLast3d;
  }
  return (flags & tensor_traits::kDense) != 0 ? StrideClass::kDense : StrideClass::kOther;
}

// Returns the dtypes to which autocast casts, where it is on, and whether it keeps what it casts.
[[gnu::noinline]] uint64_t autocast_bits() {
  uint64_t on_cpu = 0;
  uint64_t on_device = 0;  // a process has one kind of device beside the CPU
  for (const at::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    if (at::autocast::is_autocast_enabled(device)) {
      (device == at::kCPU ? on_cpu : on_device) = static_cast<uint64_t>(at::autocast::get_autocast_dtype(device)) + 1;
    }
  }
  return kAutocastDtype.with(on_cpu) | kDeviceAutocastDtype.with(on_device) |
         kAutocastCache.with(static_cast<uint64_t>(at::autocast::is_autocast_cache_enabled()));
}

// Writes the state of the process and the thread that plans rely on.
[[gnu::always_inline]] inline void write_state(uint64_t* out) {
  static const at::Context& context = at::globalContext();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  out[0] = kGradMode.with(static_cast<uint64_t>(autograd.get_grad_mode())) |
           kInferenceMode.with(static_cast<uint64_t>(autograd.get_inference_mode())) |
           kDeterministic.with(static_cast<uint64_t>(context.deterministicAlgorithms())) |
           kWarnOnly.with(static_cast<uint64_t>(context.deterministicAlgorithmsWarnOnly())) |
           kDefaultDtype.with(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  out[1] = keys.included_.remove(kWatchKey).raw_repr();
  out[2] = keys.excluded_.raw_repr();
  if (!autocast_keys(keys).empty()) [[unlikely]] {
    out[0] |= autocast_bits();
  }
  static_assert(kStateWords == 3);
}

bool is_inference(c10::DispatchKeySet keys) { return !keys.has(c10::DispatchKey::ADInplaceOrView); }

bool is_dual(const c10::TensorImpl& tensor) {
  const auto* autograd = TensorFields::autograd_meta_of(tensor);
  return autograd != nullptr && autograd->fw_grad_ != nullptr;
}

bool is_scalar_type(const c10::Type& type) {
  return type.isSubtypeOf(*c10::NumberType::get()) || type.kind() == c10::TypeKind::BoolType ||
         type.kind() == c10::TypeKind::StringType;
}

}  // namespace

const c10::DispatchKeySet kPlainCpuKeys = plain_keys(c10::kCPU);

bool are_plain_keys(c10::DispatchKeySet keys) {
  // Inference tensors lack autograd's keys.
  constexpr c10::DispatchKeySet kAutograd = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  const c10::DispatchKeySet plain = kPlainKeys.by_backend[static_cast<size_t>(keys.highestBackendKey())];
  return !keys.empty() && (keys == plain || keys == (plain - kAutograd));
}

bool is_exotic(const c10::TensorImpl& tensor) {
  return !are_plain_keys(tensor.key_set()) || is_dual(tensor) || tensor.is_wrapped_number() ||
         tensor.dim() > static_cast<int64_t>(kMaxRank);
}

const std::array<uint64_t, 256> kStrideBits = [] {
  std::array<uint64_t, 256> bits{};
  for (uint64_t flags = 0; flags < bits.size(); ++flags) {
    bits[flags] = kStrideClass.with(static_cast<uint64_t>(stride_class_of(flags)));
  }
  return bits;
}();

uint64_t shape_bits(c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t flags) {
  uint64_t ones = 0;
  bool is_new = true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    ones |= static_cast<uint64_t>(sizes[i] == 1) << i;
    is_new = is_new && strides[i] == expected;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  const StrideClass flagged = stride_class_of(flags);
  const StrideClass found = flagged == StrideClass::kContiguous && !is_new ? StrideClass::kNearlyContiguous : flagged;
  return kStrideClass.with(static_cast<uint64_t>(found)) | kOnes.with(ones);
}

SpecWriter::SpecWriter(ArgumentSpec& spec) : spec_(spec), memo_in_spec_(std::exchange(spec.memo_, 0)) {
  spec.requires_grad_ = spec.exotic_ = false;
  if (spec.words_.empty()) {
    spec.words_.resize(16);
  }
  out_ = spec.words_.data();
  limit_ = out_ + spec.words_.size();
  write_state(out_);
  out_ += kStateWords;
}

void SpecWriter::grow(size_t words) {
  const auto size = static_cast<size_t>(out_ - spec_.words_.data());
  spec_.words_.resize(std::max(2 * size, size + words));
  out_ = spec_.words_.data() + size;
  limit_ = spec_.words_.data() + spec_.words_.size();
}

void SpecWriter::end_attributes() {
  attributes_end_ = static_cast<size_t>(out_ - spec_.words_.data());
  attributes_hash_ = hash_words(spec_.words_.data() + kStateWords, attributes_end_ - kStateWords);
}

void SpecWriter::write_attributes(const AttributeMemo& memo) {
  const std::span<const uint64_t> words = memo.words();
  reserve(words.size());
  if (memo_in_spec_ != memo.id()) {
    std::copy(words.begin(), words.end(), out_);
  }
  out_ += words.size();
  attributes_end_ = static_cast<size_t>(out_ - spec_.words_.data());
  attributes_hash_ = memo.hash();
  tensors_ |= memo.tensors_ored();
  spec_.memo_ = memo.id();
}

void SpecWriter::finish() {
  const uint64_t* const words = spec_.words_.data();
  spec_.size_ = static_cast<size_t>(out_ - words);
  spec_.requires_grad_ = spec_.requires_grad_ || kRequiresGrad.of(tensors_) != 0;
  static_assert(kStateWords == 3);
  spec_.hash_ =
      hash_words(words + attributes_end_, spec_.size_ - attributes_end_, words[0], words[1], words[2], attributes_hash_);
}

void SpecWriter::write_unusual(const c10::IValue& value) {
  if (value.isTensor()) {
    write_unusual_tensor(*value.unsafeToTensorImpl());
  } else {
    write_other_value(value);
  }
}

void SpecWriter::write_unusual_tensor(const c10::TensorImpl& tensor) {
  if (&tensor == c10::UndefinedTensorImpl::singleton()) {
    push(kUndefined);
    return;
  }
  const auto* autograd = TensorFields::autograd_meta_of(tensor);
  const uint64_t requires_grad = kRequiresGrad.with(static_cast<uint64_t>(autograd != nullptr && autograd->requires_grad()));
  const uint64_t dtype = kDtype.with(static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype())));
  if (is_exotic(tensor)) {
    spec_.requires_grad_ = spec_.requires_grad_ || requires_grad != 0 || is_dual(tensor);
    spec_.exotic_ = true;
    push(kExotic | dtype | device_bits(tensor.device()) | requires_grad);
    push(tensor.key_set().raw_repr());
    return;
  }
  const c10::IntArrayRef sizes = tensor.sizes();
  const uint64_t device = tensor.is_cpu() ? kCpuBits : device_bits(tensor.device());
  const uint64_t word = kPlain | dtype | device | kRank.with(sizes.size()) | requires_grad |
                        shape_bits(sizes, tensor.strides(), tensor_traits::flags_of(TensorFields::traits_of(tensor))) |
                        kInference.with(static_cast<uint64_t>(is_inference(tensor.key_set())));
  tensors_ |= word;
  push(word);
}

void SpecWriter::write_other_value(const c10::IValue& value) {
  if (value.isNone()) {
    push(kNone);
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    if (begin_container(kTuple, elements.size())) {
      for (const c10::IValue& element : elements) {
        write_value(element);
      }
    }
  } else if (value.isList()) {
    write_list(value);
  } else if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    const bool has_tensor_keys = dict.keyType()->kind() == c10::TypeKind::TensorType;
    if (begin_container(has_tensor_keys ? kTensorDict : kDict, dict.size())) {
      for (const auto& entry : dict) {
        if (has_tensor_keys) {
          write_value(entry.key());
        }
        write_value(entry.value());
      }
    }
  } else {
    // Objects, futures, capsules: their contents are not covered.
    spec_.requires_grad_ =
        spec_.requires_grad_ || value.isObject() || value.isFuture() || (value.isPtrType() && !value.isString());
    push(word_of(kPresent));
  }
}

void SpecWriter::write_sizes(const c10::IValue& value) {
  const bool is_plain = value.isTensor() && value.toTensor().defined() && !is_exotic(*value.unsafeToTensorImpl());
  const c10::IntArrayRef sizes = is_plain ? value.toTensor().sizes() : c10::IntArrayRef();
  push(word_of(kSizes, sizes.size()));
  for (const int64_t size : sizes) {
    push(static_cast<uint64_t>(size));
  }
}

void SpecWriter::write_constant(const c10::IValue& value) {
  if (value.isInt()) {
    push(word_of(kInteger));
    push(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    push(word_of(kFloat));
    push(std::bit_cast<uint64_t>(value.toDouble()));
  } else if (value.isBool()) {
    push(word_of(kBool, static_cast<uint64_t>(value.toBool())));
  } else if (value.isString() && value.toStringRef().size() <= kMaxText) {
    const std::string& text = value.toStringRef();
    push(word_of(kString, text.size()));
    for (size_t i = 0; i < text.size(); i += sizeof(uint64_t)) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, text.data() + i, std::min(sizeof bytes, text.size() - i));
      push(bytes);
    }
  } else if (value.isIntList() && value.toListRef().size() <= kMaxIntegers) {
    push(word_of(kIntegers, value.toListRef().size()));
    for (const c10::IValue& element : value.toListRef()) {
      push(static_cast<uint64_t>(element.toInt()));
    }
  } else {
    push(value.isNone() ? kNone : word_of(kPresent));
  }
}

// Returns whether to write the elements. For a long container, neither the elements nor the length are written: a
// container that grows from call to call (a cache, a history) would make each call slower, and each spec new.
bool SpecWriter::begin_container(Form form, size_t length) {
  if (length <= kMaxElements) {
    push(word_of(form, length));
    return true;
  }
  push(word_of(kLong));
  spec_.requires_grad_ = spec_.exotic_ = true;  // conservatively
  return false;
}

void SpecWriter::write_list(const c10::IValue& value) {
  if (value.isTensorList()) {
    const auto tensors = value.toTensorList();
    if (begin_container(kList, tensors.size())) {
      for (const auto& element : tensors) {
        write_value(element.get());
      }
    }
    return;
  }
  const auto list = value.toList();
  const bool is_of_numbers = is_scalar_type(*list.elementType());
  if (begin_container(is_of_numbers ? kNumbers : kList, list.size()) && !is_of_numbers) {
    for (const auto& element : list) {
      write_value(element.get());
    }
  }
}

namespace {

const void* storage_of(const c10::IValue& value) {
  return value.isTensor() ? sconce::storage_of(value.toTensor()) : nullptr;
}

// Calls `note` with the value, or with those that it contains. std::function holds a reference without a heap allocation.
template <typename Note>
void visit_values(const c10::IValue& value, Note& note) {
  const auto visitor = [&note](const c10::IValue& each) {
    note(each);
    return false;
  };
  if (value.isTensor()) {
    note(value);
  } else if (!value.isObject()) {
    value.visit(std::cref(visitor));
  }
}

}  // namespace

void SpecWriter::write_shared_storage(std::span<const c10::IValue> arguments,
                                      std::span<const c10::IValue* const> attributes) {
  c10::SmallVector<const void*, 32> storages;
  const auto note_sharer = [&](const void* storage, uint64_t sharer, bool is_attribute) {
    const auto first = std::find(storages.begin(), storages.end(), storage);
    if (first != storages.end()) {
      push(kSharedStorageTag | kSharer.with(sharer) | kIsAttribute.with(static_cast<uint64_t>(is_attribute)) |
           kFirst.with(static_cast<uint64_t>(first - storages.begin())));
    }
  };
  const auto note_argument = [&](const c10::IValue& value) {
    if (const void* storage = storage_of(value)) {
      note_sharer(storage, storages.size(), false);
      storages.push_back(storage);
    }
  };
  for (const c10::IValue& argument : arguments) {
    visit_values(argument, note_argument);
  }
  for (size_t i = 0; i < attributes.size() && !storages.empty(); ++i) {
    const auto note_attribute = [&](const c10::IValue& value) {
      if (const void* storage = storage_of(value)) {
        note_sharer(storage, i, true);
      }
    };
    visit_values(*attributes[i], note_attribute);
  }
}

}  // namespace sconce
