#include "ir/text/print_literal.h"

#include "base/assert.h"
#include "ir/text/gradient_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <array>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <type_traits>

namespace sconce {
namespace {

template <typename Items, typename PrintItem>
void print_items(std::string& out, char open, const Items& items, char close, PrintItem print_item) {
  out += open;
  bool first = true;
  for (const auto& item : items) {
    out += first ? "" : ", ";
    print_item(item);
    first = false;
  }
  out += close;
}

// A value without a literal is printed as its index in a side table.
void print_reference(std::string& out, const c10::IValue& value, std::vector<c10::IValue>* constants) {
  out += "<" + value.tagKind();
  if (constants != nullptr) {
    out += ":" + std::to_string(constants->size());
    constants->push_back(value);
  }
  out += ">";
}

bool is_literal_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && tensor.device().is_cpu() && !tensor.requires_grad() &&
         (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kDouble);
}

void replace_interfaces(std::string& text, const c10::Type& type) {
  if (type.kind() == c10::TypeKind::InterfaceType) {
    const std::string printed = type.str();
    for (size_t at = text.find(printed); at != std::string::npos; at = text.find(printed)) {
      text.replace(at, printed.size(), type.castRaw<c10::NamedType>()->name()->qualifiedName());
    }
  }
  for (const c10::TypePtr& contained : type.containedTypes()) {
    replace_interfaces(text, *contained);
  }
}

}  // namespace

std::string quote(std::string_view text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    switch (c) {
      case '"': out << "\\\""; break;
      case '\\': out << "\\\\"; break;
      case '\n': out << "\\n"; break;
      case '\t': out << "\\t"; break;
      case '\r': out << "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out << "\\" << std::oct << std::setw(3) << std::setfill('0') << static_cast<int>(c) << std::dec;
        } else {
          out << c;
        }
    }
  }
  out << '"';
  return out.str();
}

std::string print_double(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  return text.find_first_of(".e") == std::string::npos ? text + "." : text;
}

void print_constant(std::string& out, const c10::IValue& value, std::vector<c10::IValue>* constants) {
  const auto print_nested = [&](const c10::IValue& item) { print_constant(out, item, constants); };
  if (value.isInt()) {
    out += std::to_string(value.toInt());
  } else if (value.isBool()) {
    out += value.toBool() ? '1' : '0';
  } else if (value.isDouble()) {
    out += print_double(value.toDouble());
  } else if (value.isComplexDouble()) {
    const auto complex = value.toComplexDouble();
    const std::string imaginary = print_double(complex.imag());
    out += print_double(complex.real()) + (imaginary.starts_with('-') ? "" : "+") + imaginary + "j";
  } else if (value.isString()) {
    out += quote(value.toStringRef());
  } else if (value.isDevice()) {
    out += quote(value.toDevice().str());
  } else if (value.isNone()) {
    out += "None";
  } else if (value.isList()) {
    print_items(out, '[', value.toListRef(), ']', print_nested);
  } else if (value.isTuple()) {
    print_items(out, '(', value.toTupleRef().elements(), ')', print_nested);
  } else if (value.isTensor() && is_literal_tensor(value.toTensor())) {
    const at::Tensor& tensor = value.toTensor();
    out += "{";
    print_nested(tensor.scalar_type() == at::kLong ? c10::IValue(tensor.item<int64_t>())
                                                   : c10::IValue(tensor.item<double>()));
    out += "}";
  } else {
    print_reference(out, value, constants);
  }
}

std::string type_text(const c10::Type& type) {
  std::string text = type.str();
  if (text.find("InterfaceType<") != std::string::npos) {
    replace_interfaces(text, type);
  }
  return text;
}

void print_attribute_value(std::string& out, const AttributeValue& attribute, std::vector<c10::IValue>* constants) {
  const auto print_scalar = [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, double>) {
      out += print_double(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      out += quote(value);
    } else if constexpr (std::is_same_v<T, c10::TypePtr>) {
      out += type_text(*value);
    } else {
      out += std::to_string(value);
    }
  };
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, c10::IValue>) {
          print_constant(out, value, constants);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>>) {
          SCONCE_ASSERT(false, "subgraphs are printed after the graph");
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const GradientSignature>>) {
          out += print_gradient(*value);
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, std::string> ||
                             std::is_same_v<T, c10::TypePtr>) {
          print_scalar(value);
        } else {
          print_items(out, '[', value, ']', print_scalar);
        }
      },
      attribute);
}

}  // namespace sconce
