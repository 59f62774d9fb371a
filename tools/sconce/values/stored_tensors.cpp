#include "tools/sconce/values/stored_tensors.h"

#include "report/json.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"

#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <regex>

namespace sconce::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in little-endian byte order");

std::string chars_at(const OpenFile& file, uint64_t position, size_t bytes) {
  std::string text(bytes, '\0');
  file.read(position, text.data(), bytes);
  return text;
}

template <typename Number>
Number number_at(const OpenFile& file, uint64_t position) {
  Number number = 0;
  file.read(position, &number, sizeof number);
  return number;
}

// Returns nothing if the number of bytes is beyond 64 bits, or a size is negative.
std::optional<uint64_t> bytes_needed(at::ScalarType dtype, const std::vector<int64_t>& sizes) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// ---- .npy: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html ---------------------------------------

constexpr std::array<std::pair<const char*, at::ScalarType>, 10> kNumpyTypes = {{{"f4", at::kFloat},
                                                                                 {"f8", at::kDouble},
                                                                                 {"f2", at::kHalf},
                                                                                 {"i8", at::kLong},
                                                                                 {"i4", at::kInt},
                                                                                 {"i2", at::kShort},
                                                                                 {"i1", at::kChar},
                                                                                 {"u1", at::kByte},
                                                                                 {"b1", at::kBool},
                                                                                 {"c8", at::kComplexFloat}}};

at::ScalarType numpy_dtype(const std::string& path, const std::string& description) {
  if (description.starts_with('>') && description.substr(2) != "1") {
    throw UserError(path + ": is in big-endian byte order (" + description +
                    "); write it with numpy.save(FILE, x.astype(x.dtype.newbyteorder('<')))");
  }
  for (const auto& [name, dtype] : kNumpyTypes) {
    if (description.substr(1) == name) {
      return dtype;
    }
  }
  throw UserError(path + ": has the dtype " + description +
                  ", which train does not read; write it as float32 or int64, with numpy.save(FILE, x.astype('float32'))");
}

std::vector<int64_t> numpy_sizes(const std::string& path, const std::string& shape) {
  std::vector<int64_t> sizes;
  static const std::regex number("[0-9]+");
  for (std::sregex_iterator each(shape.begin(), shape.end(), number), end; each != end; ++each) {
    const std::string digits = each->str();
    int64_t size = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), size).ec != std::errc()) {
      throw UserError(path + ": is a damaged .npy file: its shape is (" + shape + ")");
    }
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

StoredTensor find_npy_tensor(const std::string& path) {
  auto file = std::make_shared<const OpenFile>(path);
  if (file->size() < 12 || chars_at(*file, 0, 6) != "\x93NUMPY") {
    throw UserError(path + ": is no .npy file; write it with numpy.save(FILE, array)");
  }
  const auto version = number_at<uint8_t>(*file, 6);
  const uint64_t begin = version == 1 ? 10 : 12;
  const uint64_t length = version == 1 ? number_at<uint16_t>(*file, 8) : number_at<uint32_t>(*file, 8);
  if (version < 1 || version > 3 || length > file->size() - begin) {
    throw UserError(path + ": is a damaged .npy file: its header ends behind the end of the file; copy it again");
  }
  constexpr uint64_t kMostOfHeader = 4096;  // of an array of numbers
  const std::string header = chars_at(*file, begin, std::min(length, kMostOfHeader));
  static const std::regex form(R"(^\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? *\}\s*$)");
  std::smatch found;
  if (!std::regex_match(header, found, form)) {
    throw UserError(path +
                    ": holds records or another kind of array that train does not read; write one array of numbers "
                    "with numpy.save");
  }
  StoredTensor tensor{
      .file = file, .position = begin + length, .dtype = numpy_dtype(path, found[1]), .sizes = numpy_sizes(path, found[3])};
  if (found[2] == "True" && tensor.sizes.size() > 1) {
    throw UserError(path + ": is in Fortran order; write it with numpy.save(FILE, numpy.ascontiguousarray(x))");
  }
  const auto bytes = bytes_needed(tensor.dtype, tensor.sizes);
  if (!bytes || *bytes > file->size() - tensor.position) {
    throw UserError(path + ": is cut short: it has " + std::to_string(file->size() - tensor.position) +
                    " bytes of elements, and its header names " + (bytes ? std::to_string(*bytes) : "more than 2^64") +
                    "; copy it again");
  }
  return tensor;
}

// ---- safetensors: https://huggingface.co/docs/safetensors
// -----------------------------------------------------------------

namespace {

at::ScalarType safetensors_dtype(const std::string& name, const std::string& text) {
  constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kTypes = {{{"F32", at::kFloat},
                                                                              {"F64", at::kDouble},
                                                                              {"F16", at::kHalf},
                                                                              {"BF16", at::kBFloat16},
                                                                              {"I64", at::kLong},
                                                                              {"I32", at::kInt},
                                                                              {"I16", at::kShort},
                                                                              {"I8", at::kChar},
                                                                              {"U8", at::kByte},
                                                                              {"BOOL", at::kBool},
                                                                              {"C64", at::kComplexFloat}}};
  for (const auto& [known, dtype] : kTypes) {
    if (text == known) {
      return dtype;
    }
  }
  throw UserError(name + " has the dtype " + text + ", which train does not read; write it as F32 or I64");
}

}  // namespace

std::map<std::string, StoredTensor> find_safetensors(const std::string& path) {
  const std::string damaged = path + ": is no safetensors file, or a damaged one: ";
  auto file = std::make_shared<const OpenFile>(path);
  const uint64_t length = file->size() < 8 ? 0 : number_at<uint64_t>(*file, 0);
  constexpr uint64_t kMostOfHeader = 100'000'000;  // as other readers have it
  if (length == 0 || length > std::min(kMostOfHeader, file->size() - 8)) {
    throw UserError(damaged + "its header ends behind the end of the file; copy it again");
  }
  const uint64_t begin = 8 + length;
  std::map<std::string, StoredTensor> tensors;
  try {
    const Json header = Json::parse(chars_at(*file, 8, length));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        continue;
      }
      StoredTensor tensor{.file = file,
                          .dtype = safetensors_dtype(path + ": " + name, entry.at("dtype").get<std::string>()),
                          .sizes = entry.at("shape").get<std::vector<int64_t>>()};
      const auto offsets = entry.at("data_offsets").get<std::array<uint64_t, 2>>();
      if (offsets[0] > offsets[1] || bytes_needed(tensor.dtype, tensor.sizes) != offsets[1] - offsets[0]) {
        throw UserError(damaged + "'" + name + "' cannot have the size that the header says");
      }
      if (offsets[1] > file->size() - begin) {
        throw UserError(path + ": is cut short: '" + name + "' ends behind the end of the file; copy it again");
      }
      tensor.position = begin + offsets[0];
      tensors.emplace(name, std::move(tensor));
    }
  } catch (const Json::exception& failure) {
    throw UserError(damaged + "its header cannot be read: " + failure.what());
  }
  return tensors;
}

// ---- torch.save
// -----------------------------------------------------------------------------------------------------------

namespace {

c10::IValue read_without_elements(const CheckedFile& checked, const std::string& path) {
  const FileBytes& file = checked.file();
  const ZipFile zip(file.bytes(), [&](Bytes part) { file.fetch(part); });
  const std::string& first = zip.entries().front().name;
  const std::string root = first.substr(0, first.find('/') + 1);
  const auto place_of = [&](const std::string& key) {
    const ZipEntry* entry = zip.find(root + "data/" + key);
    if (entry == nullptr || entry->deflated) {
      throw UserError(path + ": the tensors of a large file must be stored, not packed; write it with torch.save");
    }
    return at::DataPtr(const_cast<uint8_t*>(entry->stored.data()), at::kCPU);
  };
  c10::IValue value;
  zip.with_content(*zip.find(root + "data.pkl"), [&](Bytes pickle) {
    const auto take = [&pickle](char* buffer, size_t bytes) {
      bytes = std::min(bytes, pickle.size());
      std::memcpy(buffer, pickle.data(), bytes);
      pickle = pickle.subspan(bytes);
      return bytes;
    };
    torch::jit::Unpickler unpickler(take, /*type_resolver=*/nullptr, /*obj_loader=*/nullptr, place_of, /*device=*/at::kCPU);
    value = unpickler.parse_ivalue();
  });
  return value;
}

}  // namespace

TorchRecords::TorchRecords(const std::string& path)
    : file_(std::make_shared<const OpenFile>(path)),
      checked_(check_arguments_archive(path)),
      value_(read_without_elements(*checked_.file, path)) {}

StoredTensor TorchRecords::find(const std::string& name, const at::Tensor& tensor) const {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_conj() ||
      tensor.is_neg()) {
    throw UserError(name + " is a sparse, quantized or non-CPU tensor; train takes dense tensors on the CPU");
  }
  if (!tensor.is_contiguous()) {
    throw UserError(name + " is " + describe_tensor_type(tensor) +
                    " with its elements in another order; write x.contiguous() to the file");
  }
  const auto* const place = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return {.file = file_,
          .position = tensor.numel() == 0 ? 0 : static_cast<uint64_t>(place - checked_.file->file().bytes().data()),
          .dtype = tensor.scalar_type(),
          .sizes = tensor.sizes().vec()};
}

}  // namespace sconce::cli
