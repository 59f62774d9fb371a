#include "tools/sconce/values/describe.h"

#include "base/deep_copy.h"
#include "base/nearest_name.h"
#include "report/number_format.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/value_walk.h"

#include <ATen/ATen.h>
#include <ATen/core/class_type.h>
#include <ATen/core/enum_type.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace sconce::cli {
namespace {

constexpr int64_t kElementsShown = 8;
constexpr int64_t kElementsInJson = 64;
constexpr int kDeepestNesting = 12;

at::Tensor readable(const at::Tensor& tensor) {
  at::Tensor result = tensor.detach();
  result = result.is_quantized() ? result.dequantize() : result;
  result = result.layout() == c10::kStrided ? result : result.to_dense();
  return result.to(c10::kCPU).resolve_conj().resolve_neg();
}

struct Statistics {
  double least = 0;
  double largest = 0;
  double mean = 0;
  int64_t nans = 0;
};

// For real tensors with elements.
std::optional<Statistics> statistics_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || tensor.is_complex()) {
    return std::nullopt;
  }
  const at::Tensor wide = tensor.to(c10::kDouble);
  Statistics statistics;
  statistics.nans = wide.isnan().sum().item<int64_t>();
  const at::Tensor numbers = statistics.nans == 0 ? wide : wide.masked_select(wide.isnan().logical_not());
  if (numbers.numel() == 0) {
    return std::nullopt;
  }
  statistics.least = numbers.min().item<double>();
  statistics.largest = numbers.max().item<double>();
  statistics.mean = numbers.mean().item<double>();
  return statistics;
}

std::string element_text(const at::Tensor& element) {
  if (element.is_complex()) {
    const auto value = element.item<c10::complex<double>>();
    return format_number(value.real()) + (value.imag() < 0 ? "-" : "+") + format_number(std::abs(value.imag())) + "j";
  }
  if (element.scalar_type() == c10::kBool) {
    return element.item<bool>() ? "true" : "false";
  }
  return element.is_floating_point() ? format_number(element.item<double>()) : std::to_string(element.item<int64_t>());
}

Json element_json(const at::Tensor& element) {
  if (element.is_complex()) {
    return element_text(element);
  }
  if (element.scalar_type() == c10::kBool) {
    return element.item<bool>();
  }
  return element.is_floating_point() ? json_number(element.item<double>()) : Json(element.item<int64_t>());
}

std::string header_of(const at::Tensor& tensor) {
  std::string text = describe_tensor_type(tensor);
  if (!tensor.device().is_cpu()) {
    text += " on " + tensor.device().str();
  }
  if (tensor.layout() != c10::kStrided) {
    text += " " + c10::str(tensor.layout());
  }
  return text + (tensor.requires_grad() ? " requires grad" : "");
}

void describe_tensor(std::string& out, const at::Tensor& tensor, const std::string& indent) {
  if (!tensor.defined()) {
    out += "undefined tensor\n";
    return;
  }
  const torch::autograd::AutoGradMode no_grad(false);
  out += header_of(tensor);
  const at::Tensor flat = readable(tensor).flatten();
  if (flat.numel() > kElementsShown) {
    if (const auto statistics = statistics_of(flat)) {
      out += "  min " + format_number(statistics->least) + "  max " + format_number(statistics->largest) + "  mean " +
             format_number(statistics->mean);
      out += statistics->nans > 0 ? "  NaN " + std::to_string(statistics->nans) : "";
    }
    out += "\n" + indent + "  ";
  } else {
    out += flat.numel() > 0 ? "  " : "";
  }
  for (int64_t i = 0; i < std::min(flat.numel(), kElementsShown); ++i) {
    out += (i == 0 ? "" : ", ") + element_text(flat[i]);
  }
  out += flat.numel() > kElementsShown ? ", ...\n" : "\n";
}

// Returns a Python or JSON literal: newlines and quotes are escaped.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::detail::error_handler_t::replace);
}

// Returns the fields of a NamedTuple; empty for a plain tuple.
std::vector<std::string> fields_of(const c10::ivalue::Tuple& tuple) {
  std::vector<std::string> names;
  if (const auto type = named_type(tuple)) {
    for (const c10::Argument& field : type->schema()->arguments()) {
      names.push_back(field.name());
    }
  }
  return names;
}

std::string class_of(const c10::ivalue::Tuple& tuple) {
  return c10::QualifiedName(unmangled(tuple.type()->expectRef<c10::TupleType>().name()->qualifiedName())).name();
}

std::string class_of(const c10::ivalue::EnumHolder& member) { return member.type()->qualifiedClassName().name(); }

std::string text_of(const c10::ivalue::EnumHolder& member) { return class_of(member) + "." + member.name(); }

void describe_value(std::string& out, const c10::IValue& value, const std::string& name, const std::string& indent,
                    int depth) {
  out += indent + name + ": ";
  if (depth > kDeepestNesting) {
    out += "...\n";
    return;
  }
  const auto elements = [&](const char* kind, const auto& values) {
    out += std::string(kind) + " of " + std::to_string(values.size()) + "\n";
    for (size_t i = 0; i < values.size(); ++i) {
      describe_value(out, values[i], "[" + std::to_string(i) + "]", indent + "  ", depth + 1);
    }
  };
  if (value.isTensor()) {
    describe_tensor(out, value.toTensor(), indent + std::string(name.size(), ' '));
  } else if (value.isTuple() && !fields_of(value.toTupleRef()).empty()) {
    const std::vector<std::string> fields = fields_of(value.toTupleRef());
    out += class_of(value.toTupleRef()) + "(" + join(fields, "=..., ") + "=...)\n";
    for (size_t i = 0; i < fields.size(); ++i) {
      describe_value(out, value.toTupleRef().elements()[i], "." + fields[i], indent + "  ", depth + 1);
    }
  } else if (value.isTuple()) {
    elements("tuple", value.toTupleRef().elements());
  } else if (value.isList()) {
    elements("list", value.toListRef());
  } else if (value.isGenericDict()) {
    out += "dict of " + std::to_string(value.toGenericDict().size()) + "\n";
    for (const auto& entry : value.toGenericDict()) {
      const std::string key = entry.key().isString() ? quoted(entry.key().toStringRef()) : c10::str(entry.key());
      describe_value(out, entry.value(), "[" + key + "]", indent + "  ", depth + 1);
    }
  } else if (value.isObject()) {
    const auto& object = value.toObjectRef();
    out += unmangled(object.name()) + "\n";
    for (size_t i = 0; i < object.slots().size(); ++i) {
      describe_value(out, object.getSlot(i), "." + object.type()->getAttributeName(i), indent + "  ", depth + 1);
    }
  } else if (value.isString()) {
    out += quoted(value.toStringRef()) + "\n";
  } else if (value.isEnum()) {
    out += text_of(*value.toEnumHolder()) + "\n";
  } else {
    out += value.isDouble() ? format_number(value.toDouble(), 8) : c10::str(value);
    out += "\n";
  }
}

Json tensor_json(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return Json{{"type", "undefined tensor"}};
  }
  const torch::autograd::AutoGradMode no_grad(false);
  Json json{{"type", "tensor"},
            {"dtype", dtype_name(tensor.scalar_type())},
            {"shape", tensor.sizes().vec()},
            {"device", tensor.device().str()},
            {"requires_grad", tensor.requires_grad()}};
  const at::Tensor flat = readable(tensor).flatten();
  if (const auto statistics = statistics_of(flat)) {
    json["min"] = json_number(statistics->least);
    json["max"] = json_number(statistics->largest);
    json["mean"] = json_number(statistics->mean);
    json["nans"] = statistics->nans;
  }
  Json elements = Json::array();
  const bool all = flat.numel() <= kElementsInJson;
  for (int64_t i = 0; i < (all ? flat.numel() : kElementsShown); ++i) {
    elements.push_back(element_json(flat[i]));
  }
  json[all ? "values" : "first"] = std::move(elements);
  return json;
}

Json json_of(const c10::IValue& value, int depth) {
  if (depth > kDeepestNesting) {
    return "...";
  }
  const auto elements = [&](const auto& values) {
    Json array = Json::array();
    for (const c10::IValue& each : values) {
      array.push_back(json_of(each, depth + 1));
    }
    return array;
  };
  if (value.isTensor()) {
    return tensor_json(value.toTensor());
  }
  if (value.isTuple()) {
    Json json{{"type", "tuple"}, {"elements", elements(value.toTupleRef().elements())}};
    if (const auto fields = fields_of(value.toTupleRef()); !fields.empty()) {
      json["class"] = class_of(value.toTupleRef());
      json["fields"] = fields;
    }
    return json;
  }
  if (value.isEnum()) {
    const c10::ivalue::EnumHolder& member = *value.toEnumHolder();
    return {{"type", "enum"},
            {"class", class_of(member)},
            {"name", member.name()},
            {"value", json_of(member.value(), depth + 1)}};
  }
  if (value.isDevice()) {
    return {{"type", "device"}, {"value", value.toDevice().str()}};
  }
  if (value.isList()) {
    return {{"type", "list"}, {"elements", elements(value.toListRef())}};
  }
  if (value.isGenericDict()) {
    Json entries = Json::array();
    for (const auto& entry : value.toGenericDict()) {
      entries.push_back(Json{{"key", json_of(entry.key(), depth + 1)}, {"value", json_of(entry.value(), depth + 1)}});
    }
    return {{"type", "dict"}, {"entries", std::move(entries)}};
  }
  if (value.isObject()) {
    const auto& object = value.toObjectRef();
    Json attributes = Json::object();
    for (size_t i = 0; i < object.slots().size(); ++i) {
      attributes[object.type()->getAttributeName(i)] = json_of(object.getSlot(i), depth + 1);
    }
    return {{"type", "object"}, {"class", unmangled(object.name())}, {"attributes", std::move(attributes)}};
  }
  if (value.isNone()) {
    return nullptr;
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return json_number(value.toDouble());
  }
  return value.isString() ? value.toStringRef() : c10::str(value);
}

std::string layout_of(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided) {
    return c10::str(tensor.layout());
  }
  return tensor.is_contiguous()                                  ? "contiguous"
         : tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) ? "channels last"
                                                                 : "strided";
}

}  // namespace

std::string describe(const c10::IValue& value, const std::string& name) {
  std::string out;
  describe_value(out, value, name, "", 0);
  return out;
}

Json to_json(const c10::IValue& value) { return json_of(value, 0); }

std::string describe_argument(const c10::IValue& argument) {
  if (!argument.isTensor() || !argument.toTensor().defined()) {
    const bool is_number = argument.isInt() || argument.isDouble() || argument.isBool();
    if (argument.isList() || argument.isTuple()) {
      const size_t size = argument.isList() ? argument.toListRef().size() : argument.toTupleRef().size();
      return std::string(argument.isList() ? "list" : "tuple") + " of " + std::to_string(size);
    }
    return is_number ? argument.type()->repr_str() + " " + c10::str(argument) : kind_of_value(argument);
  }
  const at::Tensor& tensor = argument.toTensor();
  std::string sizes;
  for (const int64_t size : tensor.sizes()) {
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  }
  return dtype_name(tensor.scalar_type()) + " [" + sizes + "] " + layout_of(tensor) +
         (tensor.device().is_cpu() ? "" : " on " + tensor.device().str()) + (tensor.requires_grad() ? " requires grad" : "");
}

}  // namespace sconce::cli
