#include "plan/timeline/trace_json.h"

#include "ir/text/print.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace sconce {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escaped.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Returns nanoseconds in the format's unit, microseconds, without rounding.
std::string microseconds(int64_t nanoseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%lld.%03d", static_cast<long long>(nanoseconds / 1000),
                static_cast<int>(nanoseconds % 1000));
  return text.data();
}

// Returns the loops that run a step, the outermost first.
std::vector<const Node*> loops_around(const Node* innermost) {
  std::vector<const Node*> loops;
  for (const Node* node = innermost; node != nullptr; node = node->owning_block()->owner()) {
    if (node->opcode() == Opcode::kLoop) {
      loops.push_back(node);
    }
  }
  std::reverse(loops.begin(), loops.end());
  return loops;
}

// The fixed parts of a step's slice.
struct StepText {
  std::string head;  // name
  std::string arguments;
};

class TraceWriter {
 public:
  explicit TraceWriter(const StepTimer& timer) : timer_(timer) {
    for (const TimedPlan& plan : timer.plans()) {
      texts_.emplace_back();
      for (size_t position = 0; position < plan.steps.size(); ++position) {
        const TimedPlan::Step& step = plan.steps[position];
        std::string arguments = "\"plan\":" + quoted(plan.name) + ",\"step\":" + std::to_string(position);
        arguments += step.node != nullptr ? ",\"node\":" + quoted(print_node_line(*step.node)) : "";
        const std::string source = source_of(step);
        arguments += source.empty() ? "" : ",\"source\":" + quoted(source);
        texts_.back().push_back({quoted(name_of(step)), std::move(arguments)});
      }
    }
  }

  std::string run() {
    uint64_t dropped = 0;
    add_metadata("process_name", 0, "sconce");
    for (const ThreadEvents& thread : timer_.threads()) {
      thread_ = thread.thread;
      dropped += thread.dropped;
      add_metadata("thread_name", thread_, "thread " + std::to_string(thread_));
      for (const StepEvent& event : thread.steps) {
        add(event);
      }
      end_runs(0);
    }
    return "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_steps\":" + std::to_string(dropped) +
           "},\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  struct OpenLoop {
    const Node* node;
    int64_t begin;
    size_t iterations = 0;
    int64_t iteration_begin = -1;  // of the iteration that runs; -1: none does
  };
  struct OpenRun {
    uint32_t depth;
    std::vector<OpenLoop> loops;
    int64_t last_end = 0;  // of the last step
  };

  void add(const StepEvent& event) {
    const TimedPlan& plan = timer_.plans()[event.plan];
    end_runs(event.depth);
    if (event.position == StepEvent::kWholeRun) {
      runs_.push_back({event.depth, {}, event.begin});
      add_slice(quoted(plan.name.empty() ? "plan" : plan.name), "plan", event.begin, event.end, "");
      return;
    }
    OpenRun& run = runs_.back();
    enter_loops(run, plan.steps[event.position], event.begin);
    const StepText& text = texts_[event.plan][event.position];
    const char* const form = event.is_prepared ? "prepared" : "ordinary";
    add_slice(text.head, form, event.begin, event.end, text.arguments + ",\"form\":\"" + form + "\"");
    run.last_end = event.end;
  }

  // Ends the runs that do not contain an event of this depth.
  void end_runs(uint32_t depth) {
    while (!runs_.empty() && runs_.back().depth >= depth) {
      end_loops(runs_.back(), 0);
      runs_.pop_back();
    }
  }

  // Opens the loops and the iteration that run the step, and ends those that do not.
  void enter_loops(OpenRun& run, const TimedPlan::Step& step, int64_t now) {
    const std::vector<const Node*> loops = loops_around(step.loop);
    size_t common = 0;
    while (common < std::min(loops.size(), run.loops.size()) && run.loops[common].node == loops[common]) {
      ++common;
    }
    end_loops(run, common);
    for (size_t i = common; i < loops.size(); ++i) {
      run.loops.push_back({loops[i], now});
    }
    if (run.loops.empty()) {
      return;
    }
    OpenLoop& innermost = run.loops.back();
    const bool is_head = step.node == innermost.node;
    if (is_head) {
      end_iteration(innermost, run.last_end);
    } else if (innermost.iteration_begin < 0) {
      innermost.iteration_begin = now;
    }
  }

  // Ends the loops but the outermost `kept`.
  void end_loops(OpenRun& run, size_t kept) {
    while (run.loops.size() > kept) {
      OpenLoop& loop = run.loops.back();
      end_iteration(loop, run.last_end);
      add_slice(quoted("prim::Loop"), "loop", loop.begin, run.last_end,
                "\"node\":" + quoted(print_node_line(*loop.node)) + ",\"iterations\":" + std::to_string(loop.iterations));
      run.loops.pop_back();
    }
  }

  void end_iteration(OpenLoop& loop, int64_t end) {
    if (loop.iteration_begin >= 0) {
      add_slice(quoted("iteration " + std::to_string(loop.iterations++)), "loop", loop.iteration_begin, end, "");
      loop.iteration_begin = -1;
    }
  }

  void add_slice(const std::string& name, const char* category, int64_t begin, int64_t end, const std::string& arguments) {
    add_line("{\"name\":" + name + ",\"cat\":\"" + category + "\",\"ph\":\"X\",\"pid\":" + std::to_string(process_) +
             ",\"tid\":" + std::to_string(thread_) + ",\"ts\":" + microseconds(begin) +
             ",\"dur\":" + microseconds(end - begin) + ",\"args\":{" + arguments + "}}");
  }

  void add_metadata(const char* what, int64_t thread, const std::string& name) {
    add_line(std::string("{\"name\":\"") + what + "\",\"ph\":\"M\",\"pid\":" + std::to_string(process_) +
             ",\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":" + quoted(name) + "}}");
  }

  void add_line(const std::string& line) {
    events_ += events_.empty() ? "" : ",\n";
    events_ += line;
  }

  const StepTimer& timer_;
  const int64_t process_ = ::getpid();
  int64_t thread_ = 0;
  std::vector<std::vector<StepText>> texts_;  // by plan, then position
  std::vector<OpenRun> runs_;
  std::string events_;
};

}  // namespace

std::string trace_json(const StepTimer& timer) { return TraceWriter(timer).run(); }

}  // namespace sconce
