#include "ir/facts.h"

#include <sstream>

namespace sconce {
namespace {

void print_dim(std::ostream& out, const Dim& dim) {
  if (dim.is_known()) {
    out << dim.value();
  } else if (dim.is_symbol()) {
    out << "SS(-" << dim.value() << ")";
  } else {
    out << "*";
  }
}

Dim dim_of(const c10::ShapeSymbol& shape_symbol) {
  return shape_symbol.is_static() ? Dim::known(shape_symbol.static_size()) : Dim::unknown();
}

}  // namespace

std::string to_string(const TensorFacts& facts) {
  std::ostringstream out;
  if (facts.dtype) {
    out << c10::toString(*facts.dtype) << (facts.sizes ? "" : "Tensor");
  } else {
    out << "Tensor";
  }
  std::vector<std::string> fields;
  if (facts.sizes) {
    for (const Dim& dim : *facts.sizes) {
      std::ostringstream field;
      print_dim(field, dim);
      fields.push_back(field.str());
    }
  }
  if (facts.strides && !facts.strides->empty()) {
    std::ostringstream field;
    field << "strides=[";
    for (size_t i = 0; i < facts.strides->size(); ++i) {
      field << (i == 0 ? "" : ", ");
      print_dim(field, (*facts.strides)[i]);
    }
    field << "]";
    fields.push_back(field.str());
  }
  if (facts.requires_grad) {
    fields.push_back(*facts.requires_grad ? "requires_grad=1" : "requires_grad=0");
  }
  if (facts.device) {
    fields.push_back("device=" + facts.device->str());
  }
  if (facts.layout && *facts.layout != c10::kStrided) {
    std::ostringstream field;
    field << "layout=" << *facts.layout;
    fields.push_back(field.str());
  }
  if (facts.sizes || !fields.empty()) {
    out << "(";
    for (size_t i = 0; i < fields.size(); ++i) {
      out << (i == 0 ? "" : ", ") << fields[i];
    }
    out << ")";
  }
  if (facts.defined && !*facts.defined) {
    out << "[Undefined]";
  }
  return out.str();
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
  if (tensor.is_nested()) {
    return facts;  // its rows differ in size
  }
  facts.sizes = known(tensor.sizes());
  if (tensor.layout() == c10::kStrided && tensor.dim() > 0) {
    facts.strides = known(tensor.strides());
  }
  return facts;
}

namespace {

template <typename Fact>
std::optional<Fact> common(const std::optional<Fact>& a, const std::optional<Fact>& b) {
  return a == b ? a : std::nullopt;
}

// Of one rank; else nothing is common.
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
  facts.dtype = common(a.dtype, b.dtype);
  facts.device = common(a.device, b.device);
  facts.layout = common(a.layout, b.layout);
  facts.requires_grad = common(a.requires_grad, b.requires_grad);
  facts.sizes = common_dims(a.sizes, b.sizes);
  facts.strides = facts.sizes ? common_dims(a.strides, b.strides) : std::nullopt;
  return facts;
}

}  // namespace sconce
