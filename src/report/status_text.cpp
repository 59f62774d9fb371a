// Status as text, JSON, and in the text format of Prometheus.
#include <sconce/status.h>

#include "base/compile_queue.h"
#include "executor/live_programs.h"
#include "kernels/packed/packed_weights.h"
#include "plan/frame.h"
#include "report/json.h"
#include "report/number_format.h"
#include "report/table.h"

#include <array>
#include <utility>

namespace sconce {
namespace {

struct NamedCounter {
  const char* name;    // in JSON
  const char* metric;  // in Prometheus
  const char* help;
  uint64_t Counters::* value;
};
constexpr std::array<NamedCounter, 6> kCounters = {
    {{"invocations", "sconce_calls_total", "Calls.", &Counters::invocations},
     {"cache_hits", "sconce_cache_hits_total", "Calls that found a plan for their kind of arguments.",
      &Counters::cache_hits},
     {"cache_misses", "sconce_cache_misses_total", "Calls of a new kind of arguments.", &Counters::cache_misses},
     {"compiles", "sconce_compiles_total", "Plans built.", &Counters::compiles},
     {"refusals", "sconce_refusals_total", "Optimizations that could not be done.", &Counters::refusals},
     {"evictions", "sconce_evictions_total", "Plans dropped because the cache was full.", &Counters::evictions}}};

struct NamedSize {
  const char* name;
  const char* metric;
  const char* help;
  size_t Status::* value;
};
constexpr std::array<NamedSize, 3> kSizes = {
    {{"packed_bytes", "sconce_packed_bytes", "Copies of weights in the order in which kernels read them.",
      &Status::packed_bytes},
     {"arena_bytes", "sconce_arena_bytes", "Memory that plans keep for the tensors of their runs.", &Status::arena_bytes},
     {"compiles_waiting", "sconce_compiles_waiting", "Compiles that are not done yet.", &Status::compiles_waiting}}};

std::string escaped_label(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

}  // namespace

Status status() {
  return {.methods = LivePrograms::of_process().status(),
          .packed_bytes = bytes_packed(),
          .arena_bytes = arena_bytes_in_use(),
          .compiles_waiting = CompileQueue::of_process().compiles_waiting()};
}

std::string to_text(const Status& status) {
  Table table({{.title = "method", .align = Align::kLeft},
               {.title = "programs"},
               {.title = "calls"},
               {.title = "misses"},
               {.title = "plans"},
               {.title = "refusals"},
               {.title = "evictions"}});
  for (const MethodStatus& method : status.methods) {
    const Counters& counters = method.counters;
    table.add_row({method.method, format_count(method.programs), format_count(counters.invocations),
                   format_count(counters.cache_misses), format_count(counters.compiles), format_count(counters.refusals),
                   format_count(counters.evictions)});
  }
  return (status.methods.empty() ? "no method was loaded\n" : table.render()) + "packed weights " +
         format_bytes(status.packed_bytes) + ", arenas " + format_bytes(status.arena_bytes) + ", " +
         format_count(status.compiles_waiting) + " compiles waiting\n";
}

std::string to_json(const Status& status) {
  Json methods = Json::array();
  for (const MethodStatus& each : status.methods) {
    Json method{{"method", each.method}, {"programs", each.programs}};
    for (const NamedCounter& counter : kCounters) {
      method[counter.name] = each.counters.*counter.value;
    }
    methods.push_back(std::move(method));
  }
  Json json{{"methods", std::move(methods)}};
  for (const NamedSize& size : kSizes) {
    json[size.name] = status.*size.value;
  }
  return json_text(json);
}

std::string to_prometheus(const Status& status) {
  const auto head = [](const char* metric, const char* help, const char* type) {
    return std::string("# HELP ") + metric + " " + help + "\n# TYPE " + metric + " " + type + "\n";
  };
  std::string text;
  for (const NamedCounter& counter : kCounters) {
    text += head(counter.metric, counter.help, "counter");
    for (const MethodStatus& each : status.methods) {
      text += std::string(counter.metric) + "{method=\"" + escaped_label(each.method) + "\"} " +
              std::to_string(each.counters.*counter.value) + "\n";
    }
  }
  text += head("sconce_programs", "Methods and functions that exist now.", "gauge");
  for (const MethodStatus& each : status.methods) {
    text += "sconce_programs{method=\"" + escaped_label(each.method) + "\"} " + std::to_string(each.programs) + "\n";
  }
  for (const NamedSize& size : kSizes) {
    text += head(size.metric, size.help, "gauge") + size.metric + " " + std::to_string(status.*size.value) + "\n";
  }
  return text;
}

}  // namespace sconce
