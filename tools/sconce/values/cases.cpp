#include "tools/sconce/values/cases.h"

#include "load/load_module.h"
#include "tools/sconce/report/errors.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace sconce::cli {
namespace {

// Reads the attributes of a CASES file. A missing attribute, or one of another type, is the user's error.
class Reader {
 public:
  Reader(const torch::jit::Module& module, const std::string& path) : module_(module), path_(path) {}

  bool has(const std::string& name) const { return module_.hasattr(name); }

  // Checks with `is_kind` and converts with `convert`.
  template <typename IsKind, typename Convert>
  auto get(const std::string& name, const char* kind, IsKind is_kind, Convert convert) const {
    if (!has(name)) {
      fail("has no attribute '" + name + "', so it is no CASES file");
    }
    const c10::IValue value = module_.attr(name);
    if (!is_kind(value)) {
      fail("its '" + name + "' should be " + kind + ", but is " + value.type()->repr_str());
    }
    return convert(value);
  }

  std::vector<c10::IValue> list(const std::string& name) const {
    return get(name, "a list", [](const auto& v) { return v.isList(); }, [](const auto& v) { return v.toListRef().vec(); });
  }
  std::vector<std::string> strings(const std::string& name) const {
    return converted<std::string>(
        name, "texts", [](const auto& v) { return v.isString(); }, [](const auto& v) { return v.toStringRef(); });
  }
  std::vector<at::Tensor> tensors(const std::string& name) const {
    return converted<at::Tensor>(
        name, "tensors", [](const auto& v) { return v.isTensor(); }, [](const auto& v) { return v.toTensor(); });
  }
  std::vector<double> doubles(const std::string& name) const {
    return converted<double>(
        name, "floats", [](const auto& v) { return v.isDouble() || v.isInt(); },
        [](const auto& v) { return v.toScalar().toDouble(); });
  }
  std::vector<std::vector<at::Tensor>> tensor_lists(const std::string& name) const {
    return converted<std::vector<at::Tensor>>(
        name, "lists of tensors", [](const auto& v) { return v.isTensorList(); },
        [](const auto& v) { return v.toTensorVector(); });
  }
  std::vector<std::vector<bool>> bool_lists(const std::string& name) const {
    return converted<std::vector<bool>>(
        name, "lists of bools", [](const auto& v) { return v.isBoolList(); },
        [](const auto& v) {
          const auto list = v.toBoolList();
          return std::vector<bool>(list.begin(), list.end());
        });
  }

  // Reads two columns that belong together.
  void expect_equal_lengths(const std::string& a, size_t a_length, const std::string& b, size_t b_length) const {
    if (a_length != b_length) {
      fail("it has " + std::to_string(a_length) + " '" + a + "' but " + std::to_string(b_length) + " '" + b + "'");
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

 private:
  template <typename T, typename IsKind, typename Convert>
  std::vector<T> converted(const std::string& name, const char* kind, IsKind is_kind, Convert convert) const {
    std::vector<T> result;
    for (const c10::IValue& value : list(name)) {
      if (!is_kind(value)) {
        fail("its '" + name + "' should be a list of " + kind);
      }
      result.push_back(convert(value));
    }
    return result;
  }

  const torch::jit::Module& module_;
  const std::string& path_;
};

ModelCases read_model_cases(const Reader& reader) {
  ModelCases cases;
  const auto is_text = [](const auto& v) { return v.isString(); };
  const auto is_number = [](const auto& v) { return v.isDouble() || v.isInt(); };
  const auto as_double = [](const auto& v) { return v.toScalar().toDouble(); };
  if (reader.has("method")) {
    cases.method = reader.get("method", "a text", is_text, [](const auto& v) { return v.toStringRef(); });
  }
  if (reader.has("seed")) {
    cases.seed = static_cast<uint64_t>(
        reader.get("seed", "an int", [](const auto& v) { return v.isInt(); }, [](const auto& v) { return v.toInt(); }));
  }
  if (reader.has("rtol")) {
    cases.rtol = reader.get("rtol", "a float", is_number, as_double);
  }
  if (reader.has("atol")) {
    cases.atol = reader.get("atol", "a float", is_number, as_double);
  }
  for (const c10::IValue& arguments : reader.list("inputs")) {
    if (!arguments.isTuple()) {
      reader.fail("its 'inputs' should be a list of tuples, one tuple of positional arguments per case");
    }
    cases.inputs.push_back(arguments.toTupleRef().elements().vec());
  }
  cases.outputs = reader.list("outputs");
  reader.expect_equal_lengths("inputs", cases.inputs.size(), "outputs", cases.outputs.size());
  if (cases.inputs.empty()) {
    reader.fail("it holds no case");
  }
  if (reader.has("grad_names")) {
    cases.grad_names = reader.strings("grad_names");
    cases.grads = reader.tensors("grads");
    reader.expect_equal_lengths("grad_names", cases.grad_names.size(), "grads", cases.grads.size());
  }
  if (reader.has("buffer_names")) {
    cases.buffer_names = reader.strings("buffer_names");
    cases.buffers_after = reader.tensors("buffers_after");
    reader.expect_equal_lengths("buffer_names", cases.buffer_names.size(), "buffers_after", cases.buffers_after.size());
  }
  return cases;
}

// Numbers the names that occur before: "add", "add (2)", "add (3)".
std::vector<std::string> numbered(const std::vector<std::string>& names) {
  std::set<std::string> taken(names.begin(), names.end());
  std::map<std::string, size_t> counts;
  std::vector<std::string> distinct;
  for (const std::string& name : names) {
    size_t& count = counts[name];
    std::string next = name;
    while (++count > 1 && !taken.insert(next = name + " (" + std::to_string(count) + ")").second) {
    }
    distinct.push_back(std::move(next));
  }
  return distinct;
}

OperatorCases read_operator_cases(const Reader& reader) {
  const auto names = reader.strings("names");
  const auto methods = reader.strings("methods");
  const auto inputs = reader.tensor_lists("inputs");
  const auto needs_grad = reader.bool_lists("needs_grad");
  const auto outputs = reader.tensor_lists("outputs");
  const auto grads = reader.tensor_lists("grads");
  const auto rtol = reader.doubles("rtol");
  const auto atol = reader.doubles("atol");
  const auto check = [&](const char* name, size_t length) {
    reader.expect_equal_lengths("names", names.size(), name, length);
  };
  check("methods", methods.size());
  check("inputs", inputs.size());
  check("needs_grad", needs_grad.size());
  check("outputs", outputs.size());
  check("grads", grads.size());
  check("rtol", rtol.size());
  check("atol", atol.size());
  if (names.empty()) {
    reader.fail("it holds no case");
  }
  const std::vector<std::string> distinct = numbered(names);
  OperatorCases cases;
  for (size_t i = 0; i < names.size(); ++i) {
    reader.expect_equal_lengths("inputs of " + names[i], inputs[i].size(), "needs_grad", needs_grad[i].size());
    cases.push_back({distinct[i], methods[i], inputs[i], needs_grad[i], outputs[i], grads[i], rtol[i], atol[i]});
  }
  return cases;
}

}  // namespace

Cases read_cases(const torch::jit::Module& module, const std::string& path) {
  const Reader reader(module, path);
  const auto methods = module.get_methods();
  if (!methods.empty() && !reader.has("inputs")) {
    reader.fail("is a model (it has the method '" + methods.front().name() +
                "'), not a CASES file; docs/cases.md tells how to write one");
  }
  if (reader.has("methods")) {
    return read_operator_cases(reader);
  }
  return read_model_cases(reader);
}

Cases read_cases(const std::string& path) {
  if (is_file_of_arguments(path)) {
    throw UserError(path + ": written by torch.save, not a CASES file: it holds no answers; 'sconce run MODEL --inputs " +
                    path + "' takes it, and docs/cases.md tells how to write CASES");
  }
  return read_cases(load_script_module(path, std::nullopt), path);
}

bool is_cases_module(const torch::jit::Module& module) {
  return module.get_methods().empty() && module.hasattr("inputs") && module.hasattr("outputs");
}

namespace {

// Returns whether the zip file, if it is one, has the first record and lacks the second. A damaged file has neither;
// its reader reports the damage.
bool has_but_lacks(const std::string& path, const std::string& record, const std::string& lacking) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  char magic[2] = {};
  if (!std::filesystem::is_regular_file(path, ignored) || !file.read(magic, 2) || magic[0] != 'P' || magic[1] != 'K') {
    return false;
  }
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    return reader.hasRecord(record) && (lacking.empty() || !reader.hasRecord(lacking));
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool is_script_archive(const std::string& path) { return has_but_lacks(path, "constants.pkl", ""); }
bool is_file_of_arguments(const std::string& path) { return has_but_lacks(path, "data.pkl", "constants.pkl"); }

CasesBeside find_cases_beside(const std::string& model, const std::string& method) {
  const std::string path = std::filesystem::path(model).replace_extension(".cases.pt").string();
  if (!std::filesystem::exists(path)) {
    return {"", path + ", which is taken without being named, is not there"};
  }
  if (method.empty()) {
    return {path, ""};
  }
  const Cases cases = read_cases(path);
  if (const auto* of_model = std::get_if<ModelCases>(&cases)) {
    if (of_model->method != method) {
      return {"", path + " records calls of '" + of_model->method + "', not of '" + method + "'"};
    }
  } else if (const auto& rows = std::get<OperatorCases>(cases);
             std::none_of(rows.begin(), rows.end(), [&](const OperatorCase& each) { return each.method == method; })) {
    return {"", path + " records no call of '" + method + "'"};
  }
  return {path, ""};
}

}  // namespace sconce::cli
