#include "load/load_module.h"

#include "base/exception_message.h"
#include "base/outside_inference_mode.h"
#include "base/paged_memory.h"
#include "base/tensors_in.h"
#include "load/check/archive.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/Version.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/csrc/jit/serialization/storage_context.h>
#include <torch/version.h>

#include <memory>

namespace sconce {
namespace {

[[noreturn]] void fail_to_read(const std::string& path, const std::string& message) {
  const std::string reason = summarize_libtorch_error(message);
  // The file is intact; an operator or class that it uses is missing.
  const bool misses_a_library =
      reason.find("Unknown builtin op") != std::string::npos || reason.find("__torch__.torch.classes") != std::string::npos;
  TORCH_CHECK(!misses_a_library, path, ": ", reason);
  const bool misses_memory = reason.find("allocate") != std::string::npos || reason.find("bad_alloc") != std::string::npos;
  TORCH_CHECK_WITH(OutOfMemoryError, !misses_memory, path, ": there is not enough memory for it: ", reason);
  // The checksums are right, so copying the file again would not help.
  TORCH_CHECK(false, path, ": LibTorch ", TORCH_VERSION, " cannot read it", reason.empty() ? "" : ": ", reason,
              "; if another version wrote the model, save it again with this one");
}

// LibTorch reports a malformed file with many types of exception, all derived from std::exception.
template <typename Read>
auto read_or_explain(const std::string& path, const CheckedFile& file, const Read& read) {
  try {
    return read();
  } catch (const std::exception& failure) {
    TORCH_CHECK(file.damaged_entry().empty(), path, ": truncated or damaged: the entry '", file.damaged_entry(),
                "' does not have its checksum: bytes of it were changed, perhaps while it was read; copy it again");
    fail_to_read(path, message_of(failure));
  }
}

// LibTorch makes sparse tensors from the file without checking that their indices are in range.
void check_sparse(const at::Tensor& tensor) {
  if (tensor.layout() == c10::kSparse) {
    at::_validate_sparse_coo_tensor_args(tensor._indices(), tensor._values(), tensor.sizes(), tensor.is_coalesced());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
    at::_validate_sparse_compressed_tensor_args(compressed, plain, tensor.values(), tensor.sizes(), tensor.layout());
  }
}

}  // namespace

torch::jit::Module load_script_module(const std::string& path, std::optional<c10::Device> device, bool pages,
                                      std::unordered_map<std::string, std::string>* extra_files) {
  const CheckedArchive checked = check_archive(path);
  TORCH_CHECK(!checked.has_meta_tensors || !device || device->is_meta(), path,
              ": has tensors on the meta device, which have no data that could come to ", device ? device->str() : "",
              "; load it without a device");
  return read_or_explain(path, *checked.file, [&] {
    const OutsideInferenceMode normal;
    std::unordered_map<std::string, std::string> none;
    torch::jit::Module module = torch::jit::load(checked.file, device, extra_files != nullptr ? *extra_files : none);
    for (const at::Tensor& tensor : tensors_in(module._ivalue())) {
      check_sparse(tensor);
      if (pages && tensor.has_storage()) {
        make_paged(*tensor.storage().unsafeGetStorageImpl());
      }
    }
    return module;
  });
}

std::vector<c10::IValue> load_arguments(const std::string& path) {
  const CheckedArchive checked = check_arguments_archive(path);
  const c10::IValue value = read_or_explain(path, *checked.file, [&] {
    caffe2::serialize::PyTorchStreamReader reader(checked.file);
    // As pickle_load reads it, but tensors that shared memory share it again.
    return torch::jit::readArchiveAndTensors("data", /*pickle_prefix=*/"", /*tensor_prefix=*/"", std::nullopt, std::nullopt,
                                             std::nullopt, reader, torch::jit::Unpickler::defaultTypeParser,
                                             std::make_shared<torch::jit::DeserializationStorageContext>());
  });
  if (value.isTuple()) {
    return value.toTupleRef().elements().vec();
  }
  return {value};
}

}  // namespace sconce
