#include "executor/specialization.h"

#include "base/compile_queue.h"
#include "base/exception_message.h"
#include "base/log.h"
#include "executor/argument_spec/facts_of_spec.h"
#include "executor/argument_spec/fields.h"
#include "ir/dump.h"
#include "plan/intra_op_threads.h"

#include <ATen/core/class_type.h>
#include <ATen/record_function.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <tuple>
#include <utility>

namespace sconce {

void Specialization::publish(std::unique_ptr<const CountedPlan> plan, std::vector<RefusalExplanation> refusals) {
  const std::lock_guard<std::mutex> lock(mutex_);
  refusals_ = std::move(refusals);
  plan_ = std::move(plan);
  published_.store(plan_.get(), std::memory_order_release);
}

void Specialization::refuse(const std::string& reason, std::vector<RefusalExplanation> refusals) {
  const std::lock_guard<std::mutex> lock(mutex_);
  why_not_ = reason;
  refusals_ = std::move(refusals);
  is_refused_.store(true, std::memory_order_relaxed);
}

void Specialization::fail(const std::string& reason) noexcept {
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      why_not_ = reason;
      refusals_.push_back({"specialized plan", reason, {}, {}});
    }
    log_once(LogLevel::kWarning, "calls run without a specialized plan: " + reason);
  } catch (const std::bad_alloc&) {
    const std::lock_guard<std::mutex> lock(mutex_);
    why_not_ = "out of memory";  // short enough to need none
  }
}

std::string Specialization::why_not() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !why_not_.empty() ? why_not_ : is_wanted_ ? "it ran once" : "its plan is being compiled";
}

void Specialization::add_refusals(std::vector<RefusalExplanation>& all) const {
  const auto key = [](const RefusalExplanation& each) { return std::tie(each.what, each.reason, each.node, each.source); };
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const RefusalExplanation& refusal : refusals_) {
    if (std::ranges::find(all, key(refusal), key) == all.end()) {
      all.push_back(refusal);
    }
  }
}

namespace {

// Facts assume the process's default dtype, which the compile reads.
bool has_default_dtype_of(const SpecializationRequest& request) {
  return spec_words::kDefaultDtype.of(request.words.front()) ==
         static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
}

// Returns `Class.method`; of a function, its name.
std::string full_name(const SpecializationSource& source) {
  const auto inputs = source.general->inputs();
  const auto module = inputs.empty() ? nullptr : inputs[0]->type()->cast<c10::ClassType>();
  return module != nullptr && module->name() ? module->name()->name() + "." + source.name : source.name;
}

Expected<CompiledMethod> compile_for(const SpecializationSource& source, const SpecializationRequest& request,
                                     CalleeTable& callees) {
  // On the caller's thread, the caller's modes are on. Profilers do not see what a compile computes.
  const at::DisableRecordFunctionGuard not_observed;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  CompileSettings settings(source.options);
  settings.name = source.name;
  settings.callees = &callees;
  const auto assume = [&](Graph& graph) {
    return facts_of_spec(graph, *source.specs, request.words, request.symbolic_sizes);
  };
  auto compiled = compile_specialized(*source.general, assume, settings);
  if (!has_default_dtype_of(request)) {
    return Refusal::because("the default dtype changed during the compile");
  }
  return compiled;
}

void compile_into(SpecializationSource& source, const SpecializationRequest& request, CalleeTable& callees,
                  Specialization& target) {
  auto compiled = compile_for(source, request, callees);
  if (!compiled) {
    target.refuse(compiled.refusal().reason, {});
    return;
  }
  if (compiled->plan == nullptr) {
    target.refuse("what is known about the arguments changes no node", std::move(compiled->refusals));
    return;
  }
  dump(DumpPoint::kPlan, source.name, [&] { return compiled->plan->text(); });
  source.compiles.add();
  if (is_logged(LogLevel::kInfo)) {
    log(LogLevel::kInfo,
        c10::str("compiled ", full_name(source), " in ", compiled->seconds * 1e3, " ms for ", describe_spec(request.words)));
  }
  target.publish(std::unique_ptr<const CountedPlan>(new CountedPlan{Tier::kRanks,
                                                                    std::move(compiled->plan),
                                                                    compiled->seconds,
                                                                    std::move(compiled->gradients),
                                                                    std::move(compiled->passes),
                                                                    {}}),
                 std::move(compiled->refusals));
}

// A job of the queue. Its use of the source ends before its ownership.
struct Job {
  std::shared_ptr<SpecializationSource> source;
  SpecializationRequest request;
  std::weak_ptr<Specialization> target;
  InFlightCount::Token use;
};

}  // namespace

void compile_now(SpecializationSource& source, const SpecializationRequest& request, CalleeTable& callees,
                 Specialization& target) noexcept {
  try {
    compile_into(source, request, callees, target);
  } catch (const std::bad_alloc&) {
    target.fail("out of memory");
  } catch (...) {
    // Also what is no std::exception: nothing could handle it on the background thread.
    target.fail("the compile failed: " + joined_lines(message_of(std::current_exception())));
  }
}

void compile_later(const std::shared_ptr<SpecializationSource>& source, SpecializationRequest request,
                   const std::shared_ptr<Specialization>& target) noexcept {
  try {
    const auto job = std::make_shared<const Job>(Job{source, std::move(request), target, source->jobs.use()});
    const bool is_submitted = CompileQueue::of_process().submit([job] {
      use_one_intra_op_thread();
      // The plan ends before what it calls.
      const auto callees = job->source->callees.lock();
      const auto wanted = job->target.lock();
      if (callees != nullptr && wanted != nullptr) {
        compile_now(*job->source, job->request, *callees, *wanted);
      }
    });
    if (is_submitted) {
      return;
    }
    const std::string why_no_thread = CompileQueue::of_process().why_no_thread();
    if (why_no_thread.empty()) {
      target->release();
      return;
    }
    target->fail("no thread can be started that compiles (" + why_no_thread +
                 "); Options::compile(CompileMode::kBlocking) needs no thread");
  } catch (const std::exception& failure) {
    target->fail(failure.what());
  }
}

}  // namespace sconce
