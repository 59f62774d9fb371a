#include "executor/argument_spec/facts_of_spec.h"

#include "analysis/memory/assigned_attributes.h"
#include "base/assert.h"
#include "executor/argument_spec/reader.h"

#include <ATen/core/jit_type.h>

#include <bit>
#include <map>
#include <utility>

namespace sconce {

using namespace spec_words;

class SpecFacts {
 public:
  SpecFacts(const ArgumentSpecCreator& creator, std::span<const uint64_t> words, std::span<const int64_t> symbolic_sizes)
      : reader_(words), symbolic_sizes_(symbolic_sizes) {
    given_.no_symbol_is_one = true;
    given_.grad_mode = kGradMode.of(words.front()) != 0;
    if (const uint64_t dtype = kAutocastDtype.of(words.front()); dtype != 0) {
      given_.autocast = {static_cast<c10::ScalarType>(dtype - 1), kAutocastCache.of(words.front()) != 0};
    }
    read_tensors(creator.tensors_);
    read_attributes(creator.constants_);
    for (const uint32_t argument : creator.values_) {
      arguments_.emplace(argument, read_value());
    }
    read_attributes(creator.others_);
    for (uint32_t i = 0; i < creator.objects_.size(); ++i) {
      const auto& object = creator.objects_[i];
      objects_.emplace(Place{object.is_argument, object.owner, object.slot}, i);
    }
  }

  InputAssumptions assume(Graph& graph) {
    const AssignedAttributes assigned(graph);
    for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
      Value& input = *graph.inputs()[i];
      if (const auto known = arguments_.find(i); known != arguments_.end()) {
        assume(input, known->second);
      } else if (const auto object = objects_.find(Place{true, i, 0}); object != objects_.end()) {
        assume_attributes(input, object->second, assigned);
      }
    }
    return std::move(given_);
  }

 private:
  struct Place {
    bool is_argument;
    uint32_t owner;
    uint32_t slot;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // The sizes of the parameters come after the words of all tensors.
  void read_tensors(const std::vector<ArgumentSpecCreator::AttributeRead>& reads) {
    SpecReader sizes = reader_;
    for (size_t i = 0; i < reads.size(); ++i) {
      sizes.next();
    }
    for (const auto& read : reads) {
      const std::span<const uint64_t> known = read.is_parameter ? sizes.next().payload : std::span<const uint64_t>();
      attributes_.emplace(std::pair(read.object, read.slot), read_value(known));
    }
    reader_ = sizes;
  }

  void read_attributes(const std::vector<ArgumentSpecCreator::AttributeRead>& reads) {
    for (const auto& read : reads) {
      attributes_.emplace(std::pair(read.object, read.slot), read_value());
    }
  }

  // `sizes`: those of a plain tensor, where the words say them.
  AbstractValue read_value(std::span<const uint64_t> sizes = {}) {
    const SpecItem item = reader_.next();
    SCONCE_ASSERT(!item.is_shared_storage(), "the words are not those of the graph");
    if (!item.is_other()) {
      return item.kind() == kPlain  ? AbstractValue::tensor(facts_of_plain(item.word, sizes))
             : item.kind() == kNone ? AbstractValue::constant(c10::IValue())
                                    : AbstractValue();
    }
    AbstractValues elements;
    for (uint64_t i = 0; i < item.element_count(); ++i) {
      elements.push_back(read_value());
    }
    switch (static_cast<Form>(kForm.of(item.word))) {
      case kList:
      case kTuple: return AbstractValue::sequence(std::move(elements));
      case kNumbers: return AbstractValue::sequence(AbstractValues(item.length()));
      case kIntegers: {
        AbstractValues integers;
        for (const uint64_t integer : item.payload) {
          integers.push_back(AbstractValue::integer(static_cast<int64_t>(integer)));
        }
        return AbstractValue::sequence(std::move(integers));
      }
      case kInteger: return AbstractValue::integer(static_cast<int64_t>(item.payload[0]));
      case kFloat: return AbstractValue::constant(std::bit_cast<double>(item.payload[0]));
      case kBool: return AbstractValue::boolean(item.length() != 0);
      case kString: return AbstractValue::constant(item.text());
      case kPresent:
      case kLong:
      case kSizes:
      case kDict:
      case kTensorDict: return {};
    }
    return {};
  }

  TensorFacts facts_of_plain(uint64_t word, std::span<const uint64_t> sizes) {
    TensorFacts facts;
    facts.dtype = static_cast<c10::ScalarType>(kDtype.of(word));
    facts.device = c10::Device(static_cast<c10::DeviceType>(kDeviceType.of(word)),
                               static_cast<c10::DeviceIndex>(static_cast<int64_t>(kDeviceIndex.of(word)) - 1));
    facts.layout = c10::kStrided;
    facts.requires_grad = kRequiresGrad.of(word) != 0;
    facts.contiguous = kStrideClass.of(word) == static_cast<uint64_t>(StrideClass::kContiguous);
    given_.any_requires_grad |= *facts.requires_grad;
    facts.sizes.emplace();
    for (uint64_t dim = 0; dim < kRank.of(word); ++dim) {
      const bool is_one = ((kOnes.of(word) >> dim) & 1) != 0;
      facts.sizes->push_back(!sizes.empty() ? Dim::known(static_cast<int64_t>(sizes[dim]))
                             : is_one       ? Dim::known(1)
                                            : new_symbol());
    }
    return facts;
  }

  Dim new_symbol() {
    const size_t made = given_.examples.size();
    const auto symbol = static_cast<int64_t>(made) + 1;
    given_.examples[symbol] = made < symbolic_sizes_.size() ? symbolic_sizes_[made] : kExample;
    return Dim::symbol(symbol);
  }

  void assume(Value& value, const AbstractValue& known) {
    const TensorFacts* facts = known.as_tensor();
    if (facts != nullptr && value.type()->kind() == c10::TypeKind::TensorType) {
      value.set_facts(*facts);
    } else if (!known.is_unknown()) {
      given_.values.emplace(&value, known);
    }
  }

  void assume_attributes(const Value& object, uint32_t index, const AssignedAttributes& assigned) {
    const auto type = object.type()->cast<c10::ClassType>();
    for (const Use& use : object.uses()) {
      if (use.user->kind() != prim::GetAttr || type == nullptr) {
        continue;
      }
      const auto slot = type->findAttributeSlot(use.user->attribute_as<std::string>(attr::kName));
      if (!slot) {
        continue;
      }
      Value& read = *use.user->output();
      const auto known = attributes_.find({index, static_cast<uint32_t>(*slot)});
      const auto held = objects_.find(Place{false, index, static_cast<uint32_t>(*slot)});
      if (known != attributes_.end() && !assigned.contains(*use.user)) {
        assume(read, known->second);
      } else if (known != attributes_.end() && known->second.as_tensor() != nullptr &&
                 read.type()->kind() == c10::TypeKind::TensorType) {
        given_.initial_attribute_values.emplace(&read, known->second);
      } else if (held != objects_.end() && !assigned.contains(*use.user)) {
        assume_attributes(read, held->second, assigned);
      }
    }
  }

  static constexpr int64_t kExample = 8;

  SpecReader reader_;
  const std::span<const int64_t> symbolic_sizes_;
  std::map<uint32_t, AbstractValue> arguments_;
  std::map<std::pair<uint32_t, uint32_t>, AbstractValue> attributes_;  // by object and slot
  std::map<Place, uint32_t> objects_;
  InputAssumptions given_;
};

InputAssumptions facts_of_spec(Graph& graph, const ArgumentSpecCreator& creator, std::span<const uint64_t> words,
                               std::span<const int64_t> symbolic_sizes) {
  return SpecFacts(creator, words, symbolic_sizes).assume(graph);
}

}  // namespace sconce
