#include "tools/sconce/train/data_source.h"

#include "base/nearest_name.h"
#include "load/load_module.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/stored_tensors.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <torch/csrc/jit/api/module.h>

#include <glob.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

namespace sconce::cli {
namespace {

constexpr const char* kRemedy = "; write the file with torch.save((inputs, targets), FILE)";

using Columns = std::vector<std::unique_ptr<ExampleRows>>;

// The tensors of a file.
struct FileColumns {
  Columns inputs;
  Columns targets;
};

class ColumnSource final : public DataSource {
 public:
  explicit ColumnSource(FileColumns columns) : columns_(std::move(columns)) {}

  int64_t examples() const override { return columns_.targets.front()->count(); }
  size_t inputs() const override { return columns_.inputs.size(); }
  size_t targets() const override { return columns_.targets.size(); }
  TrainBatch read(const at::Tensor& numbers) const override {
    TrainBatch batch;
    for (const auto& input : columns_.inputs) {
      batch.inputs.emplace_back(input->read(numbers));
    }
    for (const auto& target : columns_.targets) {
      batch.targets.emplace_back(target->read(numbers));
    }
    return batch;
  }

 private:
  const FileColumns columns_;
};

// Some examples of another source.
class ChosenExamples final : public DataSource {
 public:
  // `chosen`: their numbers, int64.
  ChosenExamples(std::shared_ptr<const DataSource> all, at::Tensor chosen)
      : all_(std::move(all)), chosen_(std::move(chosen)) {}

  int64_t examples() const override { return chosen_.size(0); }
  size_t inputs() const override { return all_->inputs(); }
  size_t targets() const override { return all_->targets(); }
  TrainBatch read(const at::Tensor& numbers) const override {
    at::Tensor among_all = at::empty({numbers.size(0)}, at::kLong);
    const int64_t* const chosen = chosen_.const_data_ptr<int64_t>();
    const at::Tensor plain = numbers.contiguous();
    std::transform(plain.const_data_ptr<int64_t>(), plain.const_data_ptr<int64_t>() + plain.size(0),
                   among_all.mutable_data_ptr<int64_t>(), [chosen](int64_t number) { return chosen[number]; });
    return all_->read(among_all);
  }

 private:
  const std::shared_ptr<const DataSource> all_;
  const at::Tensor chosen_;
};

// ---- Files with inputs and targets ----------------------------------------------------------------------------------

using MakeRows = std::function<std::unique_ptr<ExampleRows>(const std::string& name, const at::Tensor& tensor)>;

// Makes rows of a tensor, or of each tensor of a tuple or list.
Columns columns_of_value(const std::string& path, const std::string& name, const c10::IValue& value, const MakeRows& make) {
  const auto rows = [&](const std::string& each, const c10::IValue& tensor) {
    if (!tensor.isTensor() || !tensor.toTensor().defined()) {
      throw UserError(path + ": " + each + " is " + kind_of_value(tensor) + ", not a tensor" +
                      (each == name ? " or a tuple of tensors" : "") + kRemedy);
    }
    return make(path + ": " + each, tensor.toTensor());
  };
  Columns columns;
  if (!value.isTuple() && !value.isList()) {
    columns.push_back(rows(name, value));
    return columns;
  }
  for (const c10::IValue& each : value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec()) {
    columns.push_back(rows(name + "[" + std::to_string(columns.size()) + "]", each));
  }
  return columns;
}

FileColumns columns_of_pair(const std::string& path, const std::vector<c10::IValue>& pair, const MakeRows& make) {
  if (pair.size() != 2) {
    throw UserError(path + ": holds " + std::to_string(pair.size()) + (pair.size() == 1 ? " value" : " values") +
                    " instead of two, inputs and targets" + kRemedy);
  }
  return {columns_of_value(path, "inputs", pair[0], make), columns_of_value(path, "targets", pair[1], make)};
}

std::unique_ptr<ExampleRows> rows_in_memory(const std::string& name, const at::Tensor& tensor) {
  return rows_of(name, tensor);
}

FileColumns read_script_archive(const std::string& path) {
  const torch::jit::Module module = load_script_module(path, std::nullopt);
  if (!module.hasattr("inputs") || !module.hasattr("targets")) {
    throw UserError(path + ": is a TorchScript archive without the attributes 'inputs' and 'targets'" + kRemedy);
  }
  return columns_of_pair(path, {module.attr("inputs"), module.attr("targets")}, rows_in_memory);
}

// A tuple, and a list that has the same elements.
std::vector<c10::IValue> elements_of(const c10::IValue& value) {
  return value.isTuple()  ? value.toTupleRef().elements().vec()
         : value.isList() ? value.toListRef().vec()
                          : std::vector<c10::IValue>{value};
}

FileColumns read_torch_file(const std::string& path, bool into_memory) {
  if (!into_memory && is_file_of_arguments(path)) {
    const TorchRecords records(path);
    return columns_of_pair(path, elements_of(records.value()), [&](const std::string& name, const at::Tensor& tensor) {
      return rows_of(name, records.find(name, tensor));
    });
  }
  const std::vector<c10::IValue> values = load_arguments(path);
  return columns_of_pair(path, values.size() == 1 ? elements_of(values.front()) : values, rows_in_memory);
}

// Tensors `inputs` or `inputs.0`, `inputs.1`, ..., and `targets` likewise.
FileColumns read_safetensors(const std::string& path) {
  const std::map<std::string, StoredTensor> tensors = find_safetensors(path);
  const auto take = [&](const std::string& name) {
    Columns columns;
    const auto add = [&](const std::string& each) {
      const auto found = tensors.find(each);
      if (found != tensors.end()) {
        columns.push_back(rows_of(path + ": " + each, found->second));
      }
      return found != tensors.end();
    };
    if (!add(name)) {
      while (add(name + "." + std::to_string(columns.size()))) {
      }
    }
    if (columns.empty()) {
      std::vector<std::string> names;
      for (const auto& [each, tensor] : tensors) {
        names.push_back(each);
      }
      throw UserError(path + ": has no tensor '" + name + "'; there are: " + join(names) +
                      "; name them inputs and targets, or inputs.0, inputs.1 and so on");
    }
    return columns;
  };
  return {take("inputs"), take("targets")};
}

// ---- Lists of files ---------------------------------------------------------------------------------------------------

enum class FileKind : uint8_t { kTorch, kScript, kNpy, kSafetensors };

FileKind kind_of_file(const std::string& path) {
  char first[9] = {};
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    std::ifstream(path, std::ios::binary).read(first, sizeof first);
  }
  // A safetensors file begins with the length of its header, eight bytes, and the header with a brace.
  return std::string_view(first, 6) == "\x93NUMPY"                              ? FileKind::kNpy
         : path.ends_with(".safetensors") || (first[8] == '{' && first[7] == 0) ? FileKind::kSafetensors
         : is_script_archive(path)                                              ? FileKind::kScript
                                                                                : FileKind::kTorch;
}

uint64_t bytes_together(const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path, error);
    bytes += error ? 0 : size;  // the reader names what is wrong
  }
  return bytes;
}

// The files of a list are open all the time: lets this process have as many open as it may.
void allow_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// Returns the files of "a.pt", "a.pt,b.pt" or "shards/*.pt", those of a pattern by name.
std::vector<std::string> files_of(const std::string& option, const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::exists(text, ignored)) {
    return {text};
  }
  std::vector<std::string> files;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string each = text.substr(begin, end - begin);
    begin = end + 1;
    if (each.empty()) {
      throw UserError(option + " " + text + ": names an empty file; leave out the comma");
    }
    if (each.find_first_of("*?[") == std::string::npos) {
      files.push_back(each);
      continue;
    }
    glob_t found{};
    if (::glob(each.c_str(), 0, nullptr, &found) == 0) {
      files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    ::globfree(&found);
    if (files.empty()) {
      throw UserError(option + " " + each + ": no file has such a name");
    }
  }
  if (files.size() > 100) {
    allow_open_files();
  }
  return files;
}

// Returns columns that have the rows of all files.
FileColumns joined_files(std::vector<FileColumns> files, const std::vector<std::string>& paths) {
  const auto join_side = [&](Columns FileColumns::* side, const char* what) {
    Columns columns;
    for (size_t i = 0; i < (files.front().*side).size(); ++i) {
      std::vector<std::unique_ptr<ExampleRows>> parts;
      for (size_t file = 0; file < files.size(); ++file) {
        if ((files[file].*side).size() != (files.front().*side).size()) {
          throw UserError(paths[file] + ": has " + std::to_string((files[file].*side).size()) + " " + what + ", and " +
                          paths.front() + " has " + std::to_string((files.front().*side).size()) +
                          "; all files of a list must be alike");
        }
        parts.push_back(std::move((files[file].*side)[i]));
      }
      columns.push_back(joined_rows(std::move(parts)));
    }
    return columns;
  };
  return {join_side(&FileColumns::inputs, "inputs"), join_side(&FileColumns::targets, "targets")};
}

// The rows of each tensor must be as many as those of the first targets.
void expect_same_counts(const FileColumns& file) {
  const ExampleRows& targets = *file.targets.front();
  for (const Columns* columns : {&file.inputs, &file.targets}) {
    for (const auto& column : *columns) {
      if (column->count() != targets.count()) {
        const std::string path = targets.name().substr(0, targets.name().find(": ") + 2);
        throw UserError(column->name() + " has " + std::to_string(column->count()) + " examples (the first dimension), " +
                        (column->name().starts_with(path) ? targets.name().substr(path.size()) : targets.name()) + " has " +
                        std::to_string(targets.count()));
      }
    }
  }
}

Columns read_npy_columns(const std::vector<std::string>& texts, const std::string& option) {
  Columns columns;
  for (const std::string& text : texts) {
    std::vector<std::unique_ptr<ExampleRows>> parts;
    for (const std::string& path : files_of(option, text)) {
      parts.push_back(rows_of(path + ": the array", find_npy_tensor(path)));
    }
    columns.push_back(joined_rows(std::move(parts)));
  }
  return columns;
}

FileColumns read_columns(const DataFiles& files, const std::string& option) {
  const std::string targets_option = option == "--data" ? "--targets" : option + "-targets";
  const std::vector<std::string> paths = files_of(option, files.data.front());
  if (kind_of_file(paths.front()) == FileKind::kNpy) {
    if (files.targets.empty()) {
      throw UserError(option + " " + files.data.front() + ": .npy files hold one array; name that of the targets with " +
                      targets_option + " FILE.npy");
    }
    return {read_npy_columns(files.data, option), read_npy_columns(files.targets, targets_option)};
  }
  if (files.data.size() > 1 || !files.targets.empty()) {
    throw UserError((files.data.size() > 1 ? option + ": is given twice" : targets_option) + ", which is for .npy files; " +
                    paths.front() + " holds inputs and targets (name several such files as one list, a.pt,b.pt)");
  }
  std::vector<FileColumns> columns;
  const bool into_memory = bytes_together(paths) <= files.most_in_memory;
  for (const std::string& path : paths) {
    const FileKind kind = kind_of_file(path);
    columns.push_back(kind == FileKind::kSafetensors ? read_safetensors(path)
                      : kind == FileKind::kScript    ? read_script_archive(path)
                                                     : read_torch_file(path, into_memory));
    if (columns.back().inputs.empty() || columns.back().targets.empty()) {
      throw UserError(path + ": inputs or targets is an empty tuple" + kRemedy);
    }
    expect_same_counts(columns.back());
  }
  return joined_files(std::move(columns), paths);
}

}  // namespace

TrainBatch read_to(const DataSource& data, const at::Tensor& numbers, c10::Device device) {
  TrainBatch batch = data.read(numbers);
  for (std::vector<c10::IValue>* values : {&batch.inputs, &batch.targets}) {
    for (c10::IValue& value : *values) {
      value = value.toTensor().to(device);
    }
  }
  return batch;
}

std::shared_ptr<const DataSource> open_data(const DataFiles& files, const std::string& option) {
  FileColumns columns = read_columns(files, option);
  expect_same_counts(columns);
  if (columns.targets.front()->count() == 0) {
    throw UserError(files.data.front() + ": has no examples: the first dimension of targets is 0");
  }
  return std::make_shared<ColumnSource>(std::move(columns));
}

SplitData split_data(std::shared_ptr<const DataSource> data, double share, uint64_t seed) {
  const int64_t examples = data->examples();
  const int64_t second = std::llround(static_cast<double>(examples) * share);
  if (second == 0 || second == examples) {
    throw UserError("--validation-split: of " + std::to_string(examples) + " examples, " + std::to_string(second) +
                    " are for the validation; both parts need some");
  }
  const at::Tensor order = at::randperm(examples, at::detail::createCPUGenerator(seed));
  const auto part = [&](int64_t begin, int64_t end) {
    return std::make_shared<ChosenExamples>(data, std::get<0>(order.slice(0, begin, end).sort()));
  };
  return {part(second, examples), part(0, second)};
}

}  // namespace sconce::cli
