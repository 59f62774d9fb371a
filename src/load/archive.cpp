#include "load/archive.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <regex>

namespace sconce {

std::string first_line(const std::string& message) {
  const size_t begin = std::min(message.find_first_not_of(" \n"), message.size());
  return message.substr(begin, message.find('\n', begin) - begin);
}

namespace {

void erase_behind(std::string& text, const std::string& mark) { text.erase(std::min(text.find(mark), text.size())); }

}  // namespace

std::string plain_reason(const std::string& message) {
  std::string text = first_line(message);
  // "[enforce fail at inline_container.cc:145] . Couldn't parse …"
  if (text.starts_with("[enforce fail at ")) {
    text.erase(0, std::min(text.find("] . "), text.size() - std::min<size_t>(text.size(), 4)) + 4);
  }
  // "a == b INTERNAL ASSERT FAILED at "…":12, please report a bug to PyTorch. Expected …": where LibTorch's code stands
  // and that this is its own bug helps nobody whose file is damaged.
  const size_t internal = text.find("INTERNAL ASSERT FAILED at ");
  if (internal != std::string::npos) {
    const std::string end = "please report a bug to PyTorch.";
    const size_t rest = text.find(end, internal);
    text = rest == std::string::npos ? "" : text.substr(rest + end.size());
  }
  erase_behind(text, " This is an internal miniz error.");
  erase_behind(text, " (Could this error message be improved?");
  erase_behind(text, " here:");  // the lines that follow show the place in the archive's code
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(" .:") + 1);
  return text;
}

namespace {

const std::string kModelRemedy = "write the model with torch.jit.script(model).save(path)";
const std::string kArgumentsRemedy = "write it with torch.save((x, y), path)";

// A file that is no zip file: how torch.save wrote before PyTorch 1.6 (and does when asked), another pickle, or neither.
std::string describe_no_zip(std::ifstream& file) {
  std::array<char, 14> start{};
  file.seekg(0);
  file.read(start.data(), start.size());
  const std::string_view read(start.data(), static_cast<size_t>(file.gcount()));
  constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  if (read.size() > 2 && read[0] == '\x80' && read[1] <= 5) {
    return read.substr(2) == kLegacyMagic
               ? "it is in the format of torch.save before PyTorch 1.6; in Python, torch.save(torch.load(path, "
                 "weights_only=False), path) writes it anew"
               : "it is a pickle, as pickle.dump writes, without the zip file around it that torch.save makes";
  }
  return "it is not a zip file";
}

// "__main__.Net" when the pickle holds an object of a Python class, which only Python can make again. Tensors, and what
// LibTorch's reader makes of a few more names, are none.
std::optional<std::string> python_class_in(const std::string& pickle) {
  // A state_dict; inside of tensors an OrderedDict is no more than a place for hooks.
  if (pickle.substr(2).starts_with("ccollections\nOrderedDict\n")) {
    return "collections.OrderedDict";
  }
  // Opcode GLOBAL: 'c', module, line end, name, line end.
  static const std::regex global("c([A-Za-z_][A-Za-z0-9_.]*)\n([A-Za-z_][A-Za-z0-9_.]*)\n");
  for (std::sregex_iterator each(pickle.begin(), pickle.end(), global), end; each != end; ++each) {
    const std::string module = (*each)[1];
    const bool is_known = module == "torch" || module == "torch._utils" || module == "torch._tensor" ||
                          module == "collections" || module == "torch.jit._pickle" || module.starts_with("__torch__");
    if (!is_known) {
      return module + "." + std::string((*each)[2]);
    }
  }
  return std::nullopt;
}

std::optional<std::string> python_class_of(caffe2::serialize::PyTorchStreamReader& reader) {
  const auto [data, size] = reader.getRecord("data.pkl");
  return python_class_in(std::string(static_cast<const char*>(data.get()), size));
}

// Opens the file as a zip archive: LibTorch's other readers trust the offsets in its directory.
std::unique_ptr<caffe2::serialize::PyTorchStreamReader> open_zip(const std::string& path, const std::string& what,
                                                                 const std::string& remedy) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  TORCH_CHECK(std::filesystem::exists(status), path, ": no such file");
  TORCH_CHECK(!std::filesystem::is_directory(status), path, ": is a directory, not ", what);
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.good(), path, ": cannot be opened: ", std::strerror(errno));
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  TORCH_CHECK(file.gcount() > 0, path, ": the file is empty");
  const bool is_zip = file.gcount() == 4 && std::memcmp(magic.data(), "PK\x03\x04", 4) == 0;
  TORCH_CHECK(is_zip, path, ": not ", what, " (", is_zip ? "" : describe_no_zip(file), "); ", remedy);
  try {
    return std::make_unique<caffe2::serialize::PyTorchStreamReader>(path);
  } catch (const c10::Error& failure) {
    TORCH_CHECK(false, path, ": truncated or damaged: ", plain_reason(failure.what_without_backtrace()),
                "; copy it again, or ", remedy);
  }
}

}  // namespace

void check_archive(const std::string& path) {
  const auto reader = open_zip(path, "a TorchScript model", kModelRemedy);
  if (!reader->hasRecord("constants.pkl")) {
    TORCH_CHECK(reader->hasRecord("data.pkl"), path,
                ": a zip file, but not a TorchScript archive (it has no constants.pkl)");
    const auto python_class = python_class_of(*reader);
    TORCH_CHECK(false, path, ": written by torch.save, not a TorchScript model",
                python_class ? " (it holds a pickled " + *python_class + ", which only Python can read)" : "", "; ",
                kModelRemedy);
  }
  TORCH_CHECK(reader->hasRecord("data.pkl"), path, ": damaged TorchScript archive: it has no data.pkl");
}

void check_arguments_archive(const std::string& path) {
  const auto reader = open_zip(path, "a file of arguments", kArgumentsRemedy);
  TORCH_CHECK(reader->hasRecord("data.pkl"), path, ": a zip file, but it holds no value (it has no data.pkl)");
  const auto python_class = python_class_of(*reader);
  TORCH_CHECK(
      !python_class, path, ": holds a pickled ", python_class.value_or(""),
      ", which only Python can read; arguments are tensors, numbers, texts, lists, tuples and dicts: ", kArgumentsRemedy);
}

}  // namespace sconce
