#include "fusion/cpu/llvm_text.h"

#include "base/assert.h"
#include "fusion/cpu/llvm_writer.h"
#include "fusion/cpu/vector_writer.h"
#include "fusion/program/scalar_functions.h"

#include <array>
#include <utility>
#include <vector>

namespace sconce {
namespace {

// A variable as LLVM IR has it.
struct Value {
  std::string type;
  std::string name;

  bool is_vector() const { return type.front() == '<'; }
  std::string text() const { return type + " " + name; }
};

// Prints a LoopProgram whose threads are the lanes of a vector. An element is a vector of all lanes; an index, an address or
// an answer is one for all of them, unless it is computed of the lane's number. What is under a condition of such an answer
// is computed under a mask.
class LlvmPrinter {
 public:
  LlvmPrinter(const LoopProgram& loops, size_t lanes)
      : loops_(loops), w_(lanes), values_(loops.types.size()), is_assigned_(loops.types.size()) {
    for (const LoopStatement& each : loops.statements) {
      if (each.op == LoopOp::kAssign) {
        is_assigned_[each.results[0]] = true;
      }
    }
  }

  std::string text() {
    w_.line("entry:");
    entry_ = w_.size();
    for (const LoopStatement& each : loops_.statements) {
      std::vector<Value> in;
      for (const LoopVariable operand : each.operands) {
        in.push_back(value_of(operand));
      }
      if (each.results.empty()) {
        print(each, in);
      } else {
        set(each.results[0], computed(each, in));
      }
    }
    w_.line("ret void");
    return w_.module("define void @" + std::string(kKernelFunctionName) +
                     "(ptr %operands, ptr %steps, ptr %numbers, i64 %rows, i64 %elements, i64 %segments)");
  }

 private:
  // ---- variables. One that is assigned to is in memory, of which emit_object makes registers.

  Value value_of(LoopVariable variable) {
    const auto& [type, name] = values_[variable];
    return is_assigned_[variable] ? value(type, "load " + type + ", ptr " + name) : values_[variable];
  }
  void set(LoopVariable variable, const Value& value) {
    Value& place = values_[variable];
    if (!is_assigned_[variable]) {
      place = value;
      return;
    }
    if (place.name.empty()) {
      place = {value.type, w_.next_name()};
      const std::string line = place.name + " = alloca " + place.type + "\n";
      w_.insert(entry_, line);
      entry_ += line.size();
    }
    w_.line("store " + value.text() + ", ptr " + place.name);
  }

  // Returns a value with a line of its own.
  Value value(const std::string& type, const std::string& expression) { return {type, w_.value(expression)}; }
  std::string vector(const std::string& element) const { return w_.vector(element); }
  c10::ScalarType type_of(LoopVariable variable) const { return loops_.types[variable]; }

  // ---- order

  std::string next_block() { return "b" + std::to_string(blocks_++); }
  void begin_block(const std::string& name) { w_.line(name + ":"); }
  void branch(const std::string& to) { w_.line("br label %" + to); }
  void branch(const Value& condition, const std::string& to, const std::string& otherwise) {
    w_.line("br " + condition.text() + ", label %" + to + ", label %" + otherwise);
  }

  void print(const LoopStatement& each, const std::vector<Value>& in) {
    switch (each.op) {
      case LoopOp::kLoop:
        open_.push_back({.head = next_block(), .end = next_block()});
        branch(open_.back().head);
        begin_block(open_.back().head);
        return;
      case LoopOp::kWhile: {
        const std::string next = next_block();
        branch(in[0], next, open_.back().end);
        begin_block(next);
        return;
      }
      case LoopOp::kIf:
        if (in[0].is_vector()) {
          mask_ = in[0].name;
          before_mask_ = values_;
          open_.emplace_back();
        } else {
          const std::string first = next_block();
          open_.push_back({.end = next_block()});
          branch(in[0], first, open_.back().end);
          begin_block(first);
        }
        return;
      case LoopOp::kEnd: end(in); return;
      case LoopOp::kStoreLanes:
      case LoopOp::kStoreOnce: store(each, in); return;
      default: SCONCE_ASSERT(false, "no statement of vectors"); return;
    }
  }

  void end(const std::vector<Value>& in) {
    const Range range = std::move(open_.back());
    open_.pop_back();
    if (range.end.empty()) {
      mask_.clear();
      return;
    }
    if (in.empty()) {
      branch(range.head.empty() ? range.end : range.head);
    } else {
      branch(in[0], range.head, range.end);
    }
    begin_block(range.end);
  }

  // ---- values

  Value computed(const LoopStatement& each, const std::vector<Value>& in) {
    const std::string number = std::to_string(each.number);
    const c10::ScalarType type = type_of(each.results[0]);
    switch (each.op) {
      case LoopOp::kConstant: return {"i64", number};
      case LoopOp::kWord: return word(static_cast<size_t>(each.number));
      case LoopOp::kThread: return {vector("i64"), w_.lane_numbers("i64")};
      case LoopOp::kAddress:
        return value("ptr", "load ptr, ptr " + w_.value("getelementptr ptr, ptr %operands, i64 " + number));
      case LoopOp::kAdd:
        return in[0].type != "ptr" ? binary("add", in)
                                   : value(in[1].is_vector() ? vector("ptr") : "ptr",
                                           "getelementptr i8, " + in[0].text() + ", " + in[1].text());
      case LoopOp::kSubtract: return binary("sub", in);
      case LoopOp::kMultiply: return binary("mul", in);
      case LoopOp::kRemainder: return binary("urem", in);
      case LoopOp::kLess: return in[0].is_vector() ? mask_below(in[1]) : Value{"i1", binary("icmp ult", in).name};
      case LoopOp::kLessOrEqual: return {"i1", binary("icmp ule", in).name};
      case LoopOp::kChoose: return value(in[1].type, "select " + in[0].text() + ", " + in[1].text() + ", " + in[2].text());
      case LoopOp::kLoad:
      case LoopOp::kLoadLanes: return of_elements(type, w_.from_memory(loaded(each, in), type));
      case LoopOp::kShuffle:
        return value(in[0].type, "shufflevector " + in[0].text() + ", " + in[0].type + " poison, " + vector("i32") + " " +
                                     w_.lane_numbers("i32", static_cast<size_t>(each.number)));
      case LoopOp::kParameter: return of_elements(type, parameter(number, type));
      case LoopOp::kLength: {
        const std::string element = LlvmWriter::register_type(type);
        return of_elements(type, w_.splat(element, w_.value("uitofp " + in[0].text() + " to " + element)));
      }
      case LoopOp::kAssign: return assigned(each.results[0], in[0]);
      case LoopOp::kCompute: return of_elements(type, computed_element(each, in));
      default: SCONCE_ASSERT(false, "no statement of vectors"); return {};
    }
  }

  Value of_elements(c10::ScalarType type, const std::string& name) {
    return {vector(LlvmWriter::register_type(type)), name};
  }

  // The first three are arguments of the function, the others are in memory.
  Value word(size_t number) {
    static constexpr std::array<const char*, 3> kArguments = {"%rows", "%elements", "%segments"};
    if (number < kArguments.size()) {
      return {"i64", kArguments[number]};
    }
    const std::string step = std::to_string(number - kArguments.size());
    return value("i64", "load i64, ptr " + w_.value("getelementptr i64, ptr %steps, i64 " + step));
  }

  // Of two indices, one of each lane makes vectors of both.
  Value binary(const std::string& op, const std::vector<Value>& in) {
    const bool has_lanes = in[0].is_vector() || in[1].is_vector();
    const auto name_of = [&](const Value& each) {
      return has_lanes && !each.is_vector() ? w_.splat("i64", each.name) : each.name;
    };
    const std::string a = name_of(in[0]);
    const std::string type = has_lanes ? vector("i64") : "i64";
    return value(type, op + " " + type + " " + a + ", " + name_of(in[1]));
  }

  // Fewer than a vector has are compared, so 32 bits hold the number.
  Value mask_below(const Value& count) {
    const std::string all = w_.splat("i32", w_.value("trunc " + count.text() + " to i32"));
    return value(vector("i1"), "icmp ult " + vector("i32") + " " + w_.lane_numbers("i32") + ", " + all);
  }

  // Lanes that a mask leaves out keep what a variable has from outside of it.
  Value assigned(LoopVariable to, const Value& value_there) {
    const bool is_from_outside = !mask_.empty() && !before_mask_[to].name.empty();
    return is_from_outside ? value(value_there.type, "select " + vector("i1") + " " + mask_ + ", " + value_there.text() +
                                                         ", " + value_of(to).text())
                           : value_there;
  }

  // A call gives each number as a double or an int64 (KernelFunction), a bool as an int64.
  std::string parameter(const std::string& number, c10::ScalarType to) {
    const bool is_float = c10::isFloatingType(to);
    const std::string type = is_float ? "double" : "i64";
    const std::string given =
        w_.value("load " + type + ", ptr " + w_.value("getelementptr i64, ptr %numbers, i64 " + number));
    return w_.convert(w_.splat(type, given), is_float ? at::kDouble : at::kLong, to);
  }

  std::string computed_element(const LoopStatement& each, const std::vector<Value>& in) {
    const Instruction& instruction = each.instruction;
    std::array<std::string, 3> operands;
    for (size_t i = 0; i < in.size(); ++i) {
      operands[i] = in[i].name;
    }
    const auto type_of_operand = [&](size_t i) { return type_of(each.operands[i]); };
    switch (instruction.op) {
      case MachineOp::kLiteral: return w_.literal(instruction);
      case MachineOp::kConvert: return w_.convert(operands[0], type_of_operand(0), instruction.type);
      case MachineOp::kCall:
      case MachineOp::kCallOfTwo:
        return w_.call_for_each_lane(symbol_of(scalar_functions()[instruction.index], instruction.type), instruction.type,
                                     in.size(), operands);
      default: return w_.compute(instruction.op, type_of_operand(instruction.op == MachineOp::kSelect ? 1 : 0), operands);
    }
  }

  // ---- memory

  std::string address_of_lanes(c10::ScalarType type, const std::vector<Value>& in) {
    return w_.value("getelementptr " + LlvmWriter::memory_type(type) + ", " + in[0].text() + ", " + in[1].text());
  }

  std::string loaded(const LoopStatement& each, const std::vector<Value>& in) {
    const c10::ScalarType type = type_of(each.results[0]);
    if (each.op == LoopOp::kLoadLanes) {
      return w_.load(type, address_of_lanes(type, in), mask_);
    }
    const std::string element = LlvmWriter::memory_type(type);
    return in[0].is_vector() ? w_.gather(type, in[0].name, mask_)
                             : w_.splat(element, w_.value("load " + element + ", " + in[0].text() + ", align 1"));
  }

  void store(const LoopStatement& each, const std::vector<Value>& in) {
    const c10::ScalarType type = type_of(each.operands.back());
    const std::string lanes = w_.to_memory(in.back().name, type);
    if (each.op == LoopOp::kStoreLanes) {
      w_.store(type, lanes, address_of_lanes(type, in), mask_);
      return;
    }
    const std::string element = LlvmWriter::memory_type(type);
    const std::string first = w_.value("extractelement " + vector(element) + " " + lanes + ", i64 0");
    w_.line("store " + element + " " + first + ", " + in[0].text() + ", align " + std::to_string(c10::elementSize(type)));
  }

  // A loop or a condition that has not ended: its first block, of a loop, and the block behind it. None of what is under a
  // mask.
  struct Range {
    std::string head = {};
    std::string end = {};
  };

  const LoopProgram& loops_;
  LlvmWriter w_;
  size_t entry_ = 0;           // where in the text the memory of variables is
  std::vector<Value> values_;  // by variable; without a name before the variable has a value
  std::vector<bool> is_assigned_;
  std::vector<Range> open_;
  size_t blocks_ = 0;
  std::string mask_;  // empty: all lanes
  std::vector<Value> before_mask_;
};

}  // namespace

LoopProgram cpu_loops(const KernelProgram& program, size_t lanes) {
  return program.order == LoopOrder::kColumns ? column_loops(program, lanes) : row_loops(program, lanes);
}

std::string llvm_text(const KernelProgram& program, size_t lanes) {
  return LlvmPrinter(cpu_loops(program, lanes), lanes).text();
}

}  // namespace sconce
