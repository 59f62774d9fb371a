#include "plan/prepared/packed/xnn_threads.h"

#include <ATen/Parallel.h>
#include <pthreadpool.h>
#include <unistd.h>

#include <map>
#include <utility>

namespace sconce {
namespace {

struct Pool {
  explicit Pool(int threads) : pool(pthreadpool_create(static_cast<size_t>(threads))) {}
  std::mutex in_use;
  pthreadpool_t pool;
};

// Pools live as long as the process: their threads sleep while there is no work. A process that was forked has none of them,
// and makes pools of its own.
Pool& pool_of(int threads) {
  static std::mutex mutex;
  static auto* const pools = new std::map<std::pair<pid_t, int>, Pool>;
  const std::lock_guard lock(mutex);
  return pools->try_emplace({getpid(), threads}, threads).first->second;
}

}  // namespace

int xnn_threads_for(int64_t multiplications) {
  return multiplications < kMultiplicationsWorthAFork || at::in_parallel_region() ? 1 : at::get_num_threads();
}

XnnThreads::XnnThreads(int threads) {
  if (threads > 1) {
    Pool& pool = pool_of(threads);
    lock_ = std::unique_lock(pool.in_use, std::try_to_lock);
    pool_ = lock_.owns_lock() ? pool.pool : nullptr;
  }
}

pthreadpool* xnn_pool_of(int threads) { return threads > 1 ? pool_of(threads).pool : nullptr; }

}  // namespace sconce
