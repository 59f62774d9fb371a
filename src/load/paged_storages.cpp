#include "load/paged_storages.h"

#include "base/cpu_allocator.h"
#include "base/paged_memory.h"
#include "base/tensors_in.h"

#include <caffe2/serialize/file_adapter.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <unordered_map>

namespace sconce {
namespace {

// Reads a file, and notes where large pieces of it went.
class NotingReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  struct Piece {
    uint64_t position;
    size_t bytes;
  };

  explicit NotingReader(const std::string& path) : file_(path) {}
  size_t size() const override { return file_.size(); }
  size_t read(uint64_t position, void* buffer, size_t bytes, const char* what) const override {
    if (bytes >= PagedMemory::kMinBytes) {
      pieces_[buffer] = {position, bytes};
    }
    return file_.read(position, buffer, bytes, what);
  }
  const Piece* piece_at(const void* buffer) const {
    const auto found = pieces_.find(buffer);
    return found == pieces_.end() ? nullptr : &found->second;
  }

 private:
  caffe2::serialize::FileAdapter file_;
  mutable std::unordered_map<const void*, Piece> pieces_;  // LibTorch reads on one thread
};

void page(c10::StorageImpl& storage, const NotingReader& reader, const std::shared_ptr<const OpenFile>& file) {
  constexpr uint64_t kAlignment = 64;  // of LibTorch's allocator, and of the entries of its archives
  const NotingReader::Piece* piece = storage.device().is_cpu() ? reader.piece_at(storage.data()) : nullptr;
  if (piece != nullptr && piece->bytes == storage.nbytes() && piece->position % kAlignment == 0) {
    storage.set_data_ptr_noswap(PagedMemory::copy(storage.data(), piece->bytes, file, piece->position));
  }
}

}  // namespace

torch::jit::Module load_with_paged_storages(const std::string& path, std::optional<c10::Device> device) {
  const std::shared_ptr<const OpenFile> file = open_source(path);
  if (file == nullptr || has_allocator_of_user()) {
    return torch::jit::load(path, device);
  }
  const auto reader = std::make_shared<NotingReader>(path);
  torch::jit::Module module = torch::jit::load(reader, device);
  for (const at::Tensor& tensor : tensors_in(module._ivalue())) {
    if (tensor.has_storage()) {
      page(*tensor.storage().unsafeGetStorageImpl(), *reader, file);
    }
  }
  return module;
}

}  // namespace sconce
