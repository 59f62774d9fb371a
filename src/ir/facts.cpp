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

}  // namespace sconce
