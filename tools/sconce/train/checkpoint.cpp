#include "tools/sconce/train/checkpoint.h"

#include "load/load_module.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/metric.h"
#include "tools/sconce/values/torch_file.h"
#include "tools/sconce/values/write_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace sconce::cli {
namespace {

constexpr const char* kFormat = "sconce train checkpoint 2";
constexpr const char* kBeforeSeedsOfSteps = "sconce train checkpoint 1";

at::Tensor tensor_of(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

std::vector<double> doubles_of(const at::Tensor& tensor) {
  const double* begin = tensor.const_data_ptr<double>();
  return {begin, begin + tensor.numel()};
}

// Reads the entries of the dict.
class CheckpointReader {
 public:
  CheckpointReader(c10::IValue value, const std::string& path) : value_(std::move(value)), path_(path) {
    const std::string format =
        value_.isGenericDict() && has("format") && entry("format").isString() ? entry("format").toStringRef() : "";
    if (format == kBeforeSeedsOfSteps) {
      fail(
          "was written by an earlier version of 'sconce train', whose steps draw other random numbers; go on with that "
          "version, or train again");
    }
    if (format != kFormat) {
      fail("is no checkpoint that this version of 'sconce train' wrote");
    }
  }

  std::string text(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isString(); }).toStringRef();
  }
  int64_t number(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isInt() && value.toInt() >= 0; }).toInt();
  }
  size_t count(const char* name) const { return static_cast<size_t>(number(name)); }
  double real(const char* name) const {
    return checked(name, [](const c10::IValue& value) { return value.isDouble(); }).toDouble();
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
  std::vector<double> doubles(const char* name) const { return doubles_of(tensor(name, at::kDouble)); }
  // The loss comes first.
  std::vector<Series> series(const char* name) const {
    std::vector<Series> all{{TrainHistory::kLoss}};
    for (const auto& each : dict(name)) {
      if (!each.key().isString() || !each.value().isTensor() || each.value().toTensor().scalar_type() != at::kDouble ||
          each.value().toTensor().numel() != number("epoch")) {
        fail(std::string("is a damaged checkpoint: '") + name + "' has an entry of another type");
      }
      const std::string& key = each.key().toStringRef();
      const bool is_loss = key == TrainHistory::kLoss || key == TrainHistory::kValidationLoss;
      Series& added = key == TrainHistory::kLoss ? all.front() : all.emplace_back();
      added = {key, !is_loss && is_higher_better(key), doubles_of(each.value().toTensor().contiguous())};
    }
    return all;
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

uint64_t bytes_of(const Checkpoint& checkpoint) {
  uint64_t bytes = checkpoint.state.optimizer.nbytes();
  for (const auto& entry : checkpoint.state.module) {
    bytes += entry.value().isTensor() && entry.value().toTensor().defined() ? entry.value().toTensor().nbytes() : 0;
  }
  return bytes;
}

void write_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  const TrainHistory& history = checkpoint.history;
  c10::impl::GenericDict series(c10::StringType::get(), c10::AnyType::get());
  for (const Series& each : history.epochs) {
    series.insert(each.name, tensor_of(each.values));
  }
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("format", kFormat);
  dict.insert("settings", to_json(checkpoint.settings).dump());
  dict.insert("examples", checkpoint.examples);
  dict.insert("processes", checkpoint.world);
  dict.insert("step", static_cast<int64_t>(checkpoint.progress.step));
  dict.insert("epoch", static_cast<int64_t>(checkpoint.progress.epoch));
  dict.insert("example", checkpoint.progress.example);
  dict.insert("first_loss", history.first_loss);
  dict.insert("last_loss", history.last_loss);
  dict.insert("epoch_sum", history.epoch_sum);
  dict.insert("epoch_steps", static_cast<int64_t>(history.epoch_steps));
  dict.insert("epoch_ends", tensor_of(history.ends));
  dict.insert("epochs", series);
  dict.insert("curve", tensor_of(history.steps.sums));
  dict.insert("curve_width", static_cast<int64_t>(history.steps.width));
  dict.insert("module", checkpoint.state.module);
  dict.insert("optimizer", checkpoint.state.optimizer);
  write_file(path, [&dict](const ByteSink& sink) { write_torch_file(dict, sink); });
}

Checkpoint read_checkpoint(const std::string& path) {
  const std::vector<c10::IValue> values = load_arguments(path);
  const CheckpointReader reader(values.size() == 1 ? values.front() : c10::IValue(), path);
  Checkpoint checkpoint{
      .examples = reader.number("examples"),
      .world = reader.number("processes"),
      .progress = {.step = reader.count("step"), .epoch = reader.count("epoch"), .example = reader.number("example")},
      .history = {.first_loss = reader.real("first_loss"),
                  .last_loss = reader.real("last_loss"),
                  .steps = {.width = std::max<size_t>(reader.count("curve_width"), 1),
                            .count = reader.count("step"),
                            .sums = reader.doubles("curve")},
                  .epoch_sum = reader.real("epoch_sum"),
                  .epoch_steps = reader.count("epoch_steps"),
                  .ends = reader.doubles("epoch_ends"),
                  .epochs = reader.series("epochs")},
      .state = {reader.dict("module"), reader.tensor("optimizer", at::kByte)}};
  const size_t points = (checkpoint.progress.step + checkpoint.history.steps.width - 1) / checkpoint.history.steps.width;
  if (checkpoint.history.steps.sums.size() != points || checkpoint.history.ends.size() != checkpoint.progress.epoch) {
    reader.fail("is a damaged checkpoint: its curves are not of its step");
  }
  try {
    checkpoint.settings = settings_of(Json::parse(reader.text("settings")));
  } catch (const Json::exception& failure) {
    reader.fail(std::string("is a damaged checkpoint: its settings cannot be read: ") + failure.what());
  }
  return checkpoint;
}

}  // namespace sconce::cli
