#include "load/check/archive.h"

#include "load/check/code_check.h"
#include "load/check/pickle_check.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/versions.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <string_view>

namespace sconce {

namespace {

const std::string kModelRemedy = "write the model with torch.jit.script(model).save(path)";
const std::string kArgumentsRemedy = "write it with torch.save((x, y), path)";

// Returns what tells the format.
Bytes first_bytes_of(Bytes file) { return file.first(std::min<size_t>(file.size(), 14)); }

// Describes a file that is not a zip file: the format of torch.save before PyTorch 1.6 (and on request), another
// pickle, or neither.
std::string describe_no_zip(Bytes file) {
  const Bytes first = first_bytes_of(file);
  const std::string_view read(reinterpret_cast<const char*>(first.data()), first.size());
  constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  if (read.size() > 2 && read[0] == '\x80' && read[1] <= 5) {
    return read.substr(2) == kLegacyMagic
               ? "it is in the format of torch.save before PyTorch 1.6; in Python, torch.save(torch.load(path, "
                 "weights_only=False), path) writes it again"
               : "it is a pickle, as pickle.dump writes, without the zip file around it that torch.save makes";
  }
  return "it is not a zip file";
}

// Returns "__main__.Net" if the pickle holds an object of a Python class, which only Python can restore. Tensors, and
// the few other names that LibTorch's reader restores, do not count.
std::optional<std::string> python_class_in(const std::string& pickle) {
  // A state_dict. In a tensor's pickle, an OrderedDict is only a placeholder for hooks.
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

// Returns the folder that LibTorch reads, with its slash: that of the first entry.
std::string root_of(const ZipFile& zip) {
  if (zip.entries().empty()) {
    throw MalformedArchive("the archive is empty");
  }
  const std::string& first = zip.entries().front().name;
  const std::string root = first.substr(0, first.find('/') + 1);
  if (root.empty()) {
    throw MalformedArchive("the entry '" + first + "' stands in no folder");
  }
  return root;
}

// Checks an entry: its checksum, and its content if LibTorch reads it. Other entries (inputs of a trace, files that the
// author added) may hold anything. Returns whether there are tensors on the meta device.
bool check_record(const ZipFile& zip, const ZipEntry& entry, const std::string& root) {
  const std::string_view name = entry.name;
  const bool is_code = name.starts_with(root + "code/");
  const bool is_pickle =
      (is_code && name.ends_with(".debug_pkl")) || name == root + "data.pkl" || name == root + "constants.pkl";
  bool has_meta_tensors = false;
  zip.with_content(entry, [&](Bytes content) {
    try {
      if (is_pickle) {
        // The storages of data.pkl are in the folder data.
        const std::string folder = entry.name.substr(0, name.rfind('.')) + "/";
        const CheckedPickle pickle = check_pickle(content, [&](std::string_view key) -> std::optional<uint64_t> {
          const ZipEntry* storage = zip.find(folder + std::string(key));
          return storage == nullptr ? std::nullopt : std::optional(storage->size);
        });
        has_meta_tensors = pickle.has_meta_storages;
        if (name.ends_with(".debug_pkl")) {
          check_source_ranges(pickle);
        }
      } else if (is_code && name.ends_with(".py")) {
        check_code({reinterpret_cast<const char*>(content.data()), content.size()});
      }
    } catch (const MalformedArchive& problem) {
      throw MalformedArchive("the entry '" + entry.name + "' is malformed: " + problem.what());
    }
  });
  return has_meta_tensors;
}

// Returns whether there are tensors on the meta device.
bool check_records(const ZipFile& zip, const std::string& root, const std::function<bool(const ZipEntry&)>& is_left_out) {
  bool has_meta_tensors = false;
  for (const ZipEntry& entry : zip.entries()) {
    has_meta_tensors |= !is_left_out(entry) && check_record(zip, entry, root);
  }
  return has_meta_tensors;
}

std::optional<std::string> python_class_of(const ZipFile& zip, const std::string& record) {
  std::optional<std::string> python_class;
  zip.with_content(*zip.find(record),
                   [&](Bytes content) { python_class = python_class_in(std::string(content.begin(), content.end())); });
  return python_class;
}

// Asks whether torch.export.save wrote the file, a .pt2. Before PyTorch 2.8, its entries stood in no folder.
bool is_exported_program(const ZipFile& zip) {
  const std::vector<ZipEntry>& entries = zip.entries();
  const auto is_sign = [](const ZipEntry& entry) {
    return entry.name.ends_with("/archive_format") || entry.name == "serialized_exported_program.json";
  };
  return std::any_of(entries.begin(), entries.end(), is_sign);
}

// LibTorch reads the version first, and leaks its reader if it rejects it.
void check_version(const ZipFile& zip, const std::string& path, const std::string& root) {
  const ZipEntry* entry = zip.find(root + ".data/version");
  entry = entry == nullptr ? zip.find(root + "version") : entry;
  if (entry == nullptr) {
    throw MalformedArchive("it has no version");
  }
  uint64_t version = 0;
  zip.with_content(*entry, [&](Bytes content) {
    const char* begin = reinterpret_cast<const char*>(content.data());
    if (std::from_chars(begin, begin + content.size(), version).ec != std::errc()) {
      throw MalformedArchive("the entry '" + entry->name + "' is malformed: it does not begin with a number");
    }
  });
  namespace format = caffe2::serialize;
  TORCH_CHECK(version >= format::kMinSupportedFileFormatVersion && version <= format::kMaxSupportedFileFormatVersion, path,
              ": written in version ", version, " of the format, of which LibTorch ", TORCH_VERSION, " reads ",
              format::kMinSupportedFileFormatVersion, " to ", format::kMaxSupportedFileFormatVersion,
              "; save it again with that version");
}

// The elements of tensors are most of a file, and are not parsed: they are checked when LibTorch reads them.
bool is_large_tensor(const ZipEntry& entry, const std::string& root) {
  constexpr uint64_t kLarge = 256 << 10;
  return !entry.deflated && entry.size >= kLarge &&
         (entry.name.starts_with(root + "data/") || entry.name.starts_with(root + "constants/"));
}

// Opens the file, describes it if it is not a zip file, and calls `identify` with its directory and the root of its
// entries. `identify` throws if the archive is of another kind. Faults in the archive are reported with the remedy.
template <typename Identify>
CheckedArchive check_file(const std::string& path, const std::string& what, const std::string& remedy,
                          const Identify& identify) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  TORCH_CHECK(std::filesystem::exists(status), path, ": no such file");
  TORCH_CHECK(!std::filesystem::is_directory(status), path, ": is a directory, not ", what);
  CheckedArchive checked;
  try {
    checked.file = std::make_shared<CheckedFile>(path);
    checked.file->file().fetch(first_bytes_of(checked.file->file().bytes()));
  } catch (const MalformedArchive& unreadable) {
    TORCH_CHECK(false, path, ": ", unreadable.what());
  }
  constexpr std::string_view kMagic = "PK\x03\x04";
  const FileBytes& file = checked.file->file();
  const Bytes bytes = file.bytes();
  const bool is_zip = bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin());
  TORCH_CHECK(is_zip, path, ": not ", what, " (", is_zip ? "" : describe_no_zip(bytes), "); ", remedy);
  try {
    const ZipFile zip(bytes, [&](Bytes part) { file.fetch(part); });
    TORCH_CHECK(!is_exported_program(zip), path, ": written by torch.export, not ", what, "; ", remedy);
    const std::string root = root_of(zip);
    identify(zip, root);
    check_version(zip, path, root);
    checked.has_meta_tensors = check_records(zip, root, [&](const ZipEntry& entry) {
      const bool is_later = is_large_tensor(entry, root);
      if (is_later) {
        checked.file->check_later(entry);
      }
      return is_later;
    });
    return checked;
  } catch (const MalformedArchive& problem) {
    TORCH_CHECK(false, path, ": truncated or damaged: ", problem.what(), "; copy it again, or ", remedy);
  }
}

}  // namespace

void check_archive_bytes(Bytes file) {
  const ZipFile zip(file);
  check_records(zip, root_of(zip), [](const ZipEntry&) { return false; });
}

CheckedArchive check_archive(const std::string& path) {
  return check_file(path, "a TorchScript model", kModelRemedy, [&](const ZipFile& zip, const std::string& root) {
    const bool has_data = zip.find(root + "data.pkl") != nullptr;
    if (zip.find(root + "constants.pkl") == nullptr) {
      TORCH_CHECK(has_data, path, ": a zip file, but not a TorchScript archive (it has no constants.pkl)");
      const auto python_class = python_class_of(zip, root + "data.pkl");
      TORCH_CHECK(false, path, ": written by torch.save, not a TorchScript model",
                  python_class ? " (it holds a pickled " + *python_class + ", which only Python can read)" : "", "; ",
                  kModelRemedy);
    }
    TORCH_CHECK(has_data, path, ": damaged TorchScript archive: it has no data.pkl");
  });
}

CheckedArchive check_arguments_archive(const std::string& path) {
  return check_file(path, "a file of arguments", kArgumentsRemedy, [&](const ZipFile& zip, const std::string& root) {
    TORCH_CHECK(zip.find(root + "data.pkl") != nullptr, path, ": a zip file, but it holds no value (it has no data.pkl)");
    const auto python_class = python_class_of(zip, root + "data.pkl");
    TORCH_CHECK(
        !python_class, path, ": holds a pickled ", python_class.value_or(""),
        ", which only Python can read; arguments are tensors, numbers, texts, lists, tuples and dicts: ", kArgumentsRemedy);
  });
}

}  // namespace sconce
