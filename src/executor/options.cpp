#include <sconce/options.h>

#include <c10/util/Exception.h>

namespace sconce {

Options& Options::device(const std::string& name) {
  try {
    device_ = c10::Device(name);
  } catch (const c10::Error&) {
    // LibTorch's message lists all kinds of devices that it has names for.
    throw c10::Error("no device '" + name + "'; there are cpu, cuda and cuda:N");
  }
  return *this;
}

Options& Options::intra_op_threads(int threads) {
  TORCH_CHECK(threads >= 0, "intra_op_threads must be at least 1, or 0 for LibTorch's number, not ", threads);
  return set(intra_op_threads_, threads);
}

Options& Options::plan_cache_capacity(size_t plans) {
  TORCH_CHECK(plans > 0, "plan_cache_capacity must be at least 1");
  return set(plan_cache_capacity_, plans);
}

Options& Options::preserve(const std::vector<std::string>& names) {
  preserved_.insert(preserved_.end(), names.begin(), names.end());
  return *this;
}

}  // namespace sconce
