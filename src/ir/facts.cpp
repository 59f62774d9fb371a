#include "ir/facts.h"

namespace sconce {
namespace {

std::string to_string(const Dim& dim) {
  if (dim.is_known()) {
    return std::to_string(dim.value());
  }
  return dim.is_symbol() ? "SS(-" + std::to_string(dim.value()) + ")" : "*";
}

Dim dim_of(const c10::ShapeSymbol& shape_symbol) {
  return shape_symbol.is_static() ? Dim::known(shape_symbol.static_size()) : Dim::unknown();
}

}  // namespace

std::string to_string(const TensorFacts& facts) {
  std::string text = facts.dtype ? c10::toString(*facts.dtype) : "";
  if (!facts.dtype || !facts.sizes) {
    text += "Tensor";
  }
  std::vector<std::string> fields;
  if (facts.sizes) {
    for (const Dim& dim : *facts.sizes) {
      fields.push_back(to_string(dim));
    }
  }
  if (facts.strides && !facts.strides->empty()) {
    std::string field = "strides=[";
    for (size_t i = 0; i < facts.strides->size(); ++i) {
      field += (i == 0 ? "" : ", ") + to_string((*facts.strides)[i]);
    }
    fields.push_back(field + "]");
  }
  if (facts.contiguous) {
    fields.push_back("contiguous");
  }
  if (facts.is_wrapped_number) {
    fields.push_back("number");
  }
  if (facts.requires_grad) {
    fields.push_back(*facts.requires_grad ? "requires_grad=1" : "requires_grad=0");
  }
  if (facts.device) {
    fields.push_back("device=" + facts.device->str());
  }
  if (facts.layout && *facts.layout != c10::kStrided) {
    fields.push_back(c10::str("layout=", *facts.layout));
  }
  if (facts.sizes || !fields.empty()) {
    text += "(";
    for (size_t i = 0; i < fields.size(); ++i) {
      text += (i == 0 ? "" : ", ") + fields[i];
    }
    text += ")";
  }
  if (facts.defined && !*facts.defined) {
    text += "[Undefined]";
  }
  return text;
}

TensorFacts facts_of(const c10::TensorType& type) {
  TensorFacts facts;
  facts.dtype = type.scalarType();
  facts.device = type.device();
  facts.requires_grad = type.requiresGrad();
  if (type.undefined() && *type.undefined()) {
    facts.defined = false;
  }
  if (auto sizes = type.symbolic_sizes().sizes()) {
    facts.sizes.emplace();
    for (const c10::ShapeSymbol& size : *sizes) {
      facts.sizes->push_back(dim_of(size));
    }
    const auto strides = type.strides().concrete_sizes();
    if (strides && strides->size() == facts.sizes->size() && !strides->empty()) {
      facts.strides.emplace();
      for (const int64_t stride : *strides) {
        facts.strides->push_back(Dim::known(stride));
      }
    }
  }
  return facts;
}

TensorFacts facts_of(const at::Tensor& tensor) {
  TensorFacts facts;
  facts.defined = tensor.defined();
  if (!tensor.defined()) {
    return facts;
  }
  const auto known = [](at::IntArrayRef numbers) {
    std::vector<Dim> dims;
    for (const int64_t number : numbers) {
      dims.push_back(Dim::known(number));
    }
    return dims;
  };
  facts.dtype = tensor.scalar_type();
  facts.device = tensor.device();
  facts.layout = tensor.layout();
  facts.requires_grad = tensor.requires_grad();
  facts.is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (tensor.is_nested()) {
    return facts;  // a nested tensor: its rows differ in size
  }
  facts.sizes = known(tensor.sizes());
  if (tensor.layout() == c10::kStrided && tensor.dim() > 0) {
    facts.strides = known(tensor.strides());
  }
  return facts;
}

TensorFacts facts_without_autograd(const at::Tensor& tensor) {
  TensorFacts facts = facts_of(tensor);
  facts.requires_grad = false;
  return facts;
}

namespace {

template <typename Fact>
std::optional<Fact> common(const std::optional<Fact>& a, const std::optional<Fact>& b) {
  return a == b ? a : std::nullopt;
}

// Joins dims of equal rank; tensors of different ranks have no sizes in common.
std::optional<std::vector<Dim>> common_dims(const std::optional<std::vector<Dim>>& a,
                                            const std::optional<std::vector<Dim>>& b) {
  if (!a || !b || a->size() != b->size()) {
    return std::nullopt;
  }
  std::vector<Dim> dims = *a;
  for (size_t i = 0; i < dims.size(); ++i) {
    dims[i] = dims[i] == (*b)[i] ? dims[i] : Dim::unknown();
  }
  return dims;
}

}  // namespace

TensorFacts common_facts(const TensorFacts& a, const TensorFacts& b) {
  TensorFacts facts;
  facts.defined = common(a.defined, b.defined);
  // A dtype counts for less in a number, so one that only some cases have as a number is not known.
  const bool promote_alike = a.is_wrapped_number == b.is_wrapped_number;
  facts.dtype = promote_alike ? common(a.dtype, b.dtype) : std::nullopt;
  facts.is_wrapped_number = a.is_wrapped_number && b.is_wrapped_number;
  facts.device = common(a.device, b.device);
  facts.layout = common(a.layout, b.layout);
  facts.requires_grad = common(a.requires_grad, b.requires_grad);
  facts.sizes = common_dims(a.sizes, b.sizes);
  facts.strides = facts.sizes ? common_dims(a.strides, b.strides) : std::nullopt;
  facts.contiguous = a.contiguous && b.contiguous;
  return facts;
}

TensorFacts all_facts(TensorFacts a, const TensorFacts& b) {
  const auto add = [](auto& fact, const auto& other) {
    if (!fact) {
      fact = other;
    }
  };
  add(a.defined, b.defined);
  add(a.dtype, b.dtype);
  add(a.device, b.device);
  add(a.layout, b.layout);
  add(a.requires_grad, b.requires_grad);
  const auto add_dims = [&](auto& dims, const auto& others) {
    add(dims, others);
    for (size_t i = 0; others && dims->size() == others->size() && i < dims->size(); ++i) {
      Dim& dim = (*dims)[i];
      dim = dim.is_unknown() || (*others)[i].is_known() ? (*others)[i] : dim;
    }
  };
  add_dims(a.sizes, b.sizes);
  add_dims(a.strides, b.strides);
  a.contiguous = a.contiguous || b.contiguous;
  a.is_wrapped_number = a.is_wrapped_number || b.is_wrapped_number;
  return a;
}

}  // namespace sconce
