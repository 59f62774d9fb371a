#include "tools/sconce/train/checkpoint.h"

#include "load/load_module.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/torch_file.h"
#include "tools/sconce/values/write_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace sconce::cli {
namespace {

constexpr const char* kFormat = "sconce train checkpoint 1";

at::Tensor tensor_of(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

// Reads the entries of the dict.
class CheckpointReader {
 public:
  CheckpointReader(c10::IValue value, const std::string& path) : value_(std::move(value)), path_(path) {
    if (!value_.isGenericDict() || !has("format") || !entry("format").isString() ||
        entry("format").toStringRef() != kFormat) {
      fail("is no checkpoint that this version of 'sconce train' wrote");
    }
  }

  std::string text(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isString(); }).toStringRef();
  }
  int64_t number(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isInt(); }).toInt();
  }
  c10::impl::GenericDict dict(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isGenericDict(); }).toGenericDict();
  }
  at::Tensor tensor(const char* name, at::ScalarType dtype) const {
    return checked(name,
                   [dtype](const c10::IValue& value) {
                     return value.isTensor() && value.toTensor().scalar_type() == dtype && value.toTensor().dim() == 1;
                   })
        .toTensor()
        .contiguous();
  }
  std::vector<double> doubles(const char* name) const {
    const at::Tensor values = tensor(name, at::kDouble);
    const double* begin = values.const_data_ptr<double>();
    return {begin, begin + values.numel()};
  }

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

 private:
  bool has(const char* name) const { return value_.toGenericDict().contains(name); }
  c10::IValue entry(const char* name) const { return value_.toGenericDict().at(name); }

  template <typename IsKind>
  c10::IValue checked(const char* name, const IsKind& is_kind) const {
    if (!has(name) || !is_kind(entry(name))) {
      fail(std::string("is a damaged checkpoint: '") + name + "' is missing or of another type");
    }
    return entry(name);
  }

  const c10::IValue value_;
  const std::string& path_;
};

}  // namespace

void write_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("format", kFormat);
  dict.insert("settings", to_json(checkpoint.settings).dump());
  dict.insert("examples", checkpoint.examples);
  dict.insert("step", static_cast<int64_t>(checkpoint.history.losses.size()));
  dict.insert("losses", tensor_of(checkpoint.history.losses));
  dict.insert("validation_losses", tensor_of(checkpoint.history.validation_losses));
  dict.insert("module", checkpoint.state.module);
  dict.insert("optimizer", checkpoint.state.optimizer);
  dict.insert("generator", checkpoint.state.generator);
  const std::vector<char> bytes = torch_file(dict);
  write_file(path, {bytes.data(), bytes.size()});
}

Checkpoint read_checkpoint(const std::string& path) {
  const std::vector<c10::IValue> values = load_arguments(path);
  const CheckpointReader reader(values.size() == 1 ? values.front() : c10::IValue(), path);
  Checkpoint checkpoint{
      .examples = reader.number("examples"),
      .history = {reader.doubles("losses"), reader.doubles("validation_losses")},
      .state = {reader.dict("module"), reader.tensor("optimizer", at::kByte), reader.tensor("generator", at::kByte)}};
  try {
    checkpoint.settings = settings_of(Json::parse(reader.text("settings")));
  } catch (const Json::exception& failure) {
    reader.fail(std::string("is a damaged checkpoint: its settings cannot be read: ") + failure.what());
  }
  return checkpoint;
}

}  // namespace sconce::cli
