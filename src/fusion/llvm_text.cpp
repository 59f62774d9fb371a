#include "fusion/llvm_text.h"

#include "fusion/cost_model.h"
#include "fusion/llvm_writer.h"
#include "fusion/scalar_functions.h"
#include "fusion/schedule.h"

#include <array>
#include <map>

namespace sconce {
namespace {

std::string named(const char* prefix, size_t number) { return prefix + std::to_string(number); }

class Function {
 public:
  Function(const KernelProgram& program, size_t lanes)
      : w_(lanes),
        program_(program),
        schedule_(schedule_of(program)),
        operands_(program.inputs.size() + program.outputs.size() + schedule_.buffers.size()) {}

  std::string text() {
    write_entry();
    write_row_head();
    for (uint32_t pass = 0; pass < schedule_.passes; ++pass) {
      write_pass(pass);
    }
    write_row_end();
    return w_.module("define void @" + std::string(kKernelFunctionName) +
                     "(ptr %operands, ptr %steps, ptr %numbers, i64 %rows, i64 %elements)");
  }

 private:
  // The code of one element of each lane in a pass: written once for full vectors, once under a mask.
  struct Body {
    uint32_t pass;
    std::string index;
    std::string mask;                        // empty: all lanes
    std::map<uint32_t, std::string> values;  // by instruction
  };

  // ---- the frame of the function

  void write_entry() {
    w_.line("entry:");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%at" + n + " = getelementptr ptr, ptr %operands, i64 " + n);
      w_.line("%first" + n + " = load ptr, ptr %at" + n);
      w_.line("%step_at" + n + " = getelementptr i64, ptr %steps, i64 " + n);
      w_.line("%step" + n + " = load i64, ptr %step_at" + n);
      if (k < program_.inputs.size() && program_.inputs[k].access == Access::kStrided) {
        w_.line("%stride_at" + n + " = getelementptr i64, ptr %steps, i64 " + std::to_string(operands_ + k));
        w_.line("%stride" + n + " = load i64, ptr %stride_at" + n);
        w_.line("%lane_offsets" + n + " = mul " + w_.vector("i64") + " " + w_.lane_numbers("i64") + ", " +
                w_.splat("i64", "%stride" + n));
      }
    }
    for (size_t k = 0; k < program_.numbers.size(); ++k) {
      const std::string n = std::to_string(k);
      const bool is_float = c10::isFloatingType(program_.numbers[k]);
      const std::string type = is_float ? "double" : "i64";
      w_.line("%number_at" + n + " = getelementptr i64, ptr %numbers, i64 " + n);
      w_.line("%number_in" + n + " = load " + type + ", ptr %number_at" + n);
      numbers_.push_back(
          w_.convert(w_.splat(type, "%number_in" + n), is_float ? at::kDouble : at::kLong, program_.numbers[k]));
    }
    w_.line("%length32 = uitofp i64 %elements to float");
    w_.line("%length64 = uitofp i64 %elements to double");
    w_.line("%is_long = icmp uge i64 %elements, " + std::to_string(cost_model::kUnrolledVectors * w_.lanes()));
    w_.line("br label %row");
  }

  void write_row_head() {
    w_.line("row:");
    w_.line("%r = phi i64 [ 0, %entry ], [ %next_row, %row_end ]");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%p" + n + " = phi ptr [ %first" + n + ", %entry ], [ %next" + n + ", %row_end ]");
    }
    write_row_values(0);
    w_.line("br label %pass0");
  }

  void write_row_end() {
    w_.line("row_end:");
    w_.line("%next_row = add i64 %r, 1");
    for (size_t k = 0; k < operands_; ++k) {
      const std::string n = std::to_string(k);
      w_.line("%next" + n + " = getelementptr i8, ptr %p" + n + ", i64 %step" + n);
    }
    w_.line("%more = icmp ult i64 %next_row, %rows");
    w_.line("br i1 %more, label %row, label %exit");
    w_.line("exit:");
    w_.line("ret void");
  }

  // ---- a pass over the row
  //
  //   many:  several full vectors, each with folds of its own, in long rows; joined: their folds in one
  //   head:  i, the folds so far; full vectors while they fit
  //   body:  a full vector            rest:  what is left, under a mask
  //   done:  the folds' values, and what the row computes of them

  void write_pass(uint32_t pass) {
    const std::string p = std::to_string(pass);
    std::vector<uint32_t> folds;
    // A cheap value is computed in less time than the sum takes to which it is added.
    bool are_cheap = true;
    for (uint32_t i = 0; i < program_.code.size(); ++i) {
      if (is_fold(program_.code[i].op) && schedule_.stage[i] == pass + 1) {
        folds.push_back(i);
        are_cheap = are_cheap && schedule_.is_cheap[program_.code[i].a];
      }
    }
    const bool is_unrolled = !folds.empty() && are_cheap;
    w_.line("pass" + p + ":");
    w_.line(is_unrolled ? "br i1 %is_long, label %many" + p + ", label %head" + p : "br label %head" + p);
    if (is_unrolled) {
      write_unrolled(pass, folds);
    }
    w_.line("head" + p + ":");
    w_.line("%i" + p + " = phi i64 [ 0, %pass" + p + " ], [ %after" + p + ", %body" + p + " ]" +
            (is_unrolled ? ", [ %many_i" + p + ", %joined" + p + " ]" : ""));
    for (const uint32_t fold : folds) {
      const std::string f = std::to_string(fold);
      w_.line("%fold" + f + " = phi " + type_of(fold) + " [ " + start_of(fold) + ", %pass" + p + " ], [ %more" + f +
              ", %body" + p + " ]" + (is_unrolled ? ", [ " + joined_.at(fold) + ", %joined" + p + " ]" : ""));
    }
    w_.line("%after" + p + " = add i64 %i" + p + ", " + std::to_string(w_.lanes()));
    w_.line("%fits" + p + " = icmp ule i64 %after" + p + ", %elements");
    w_.line("br i1 %fits" + p + ", label %body" + p + ", label %tail" + p);

    w_.line("body" + p + ":");
    Body full{pass, "%i" + p, "", {}};
    for (const uint32_t fold : folds) {
      w_.line("%more" + std::to_string(fold) + " = bitcast " + type_of(fold) + " " +
              folded(full, fold, "%fold" + std::to_string(fold)) + " to " + type_of(fold));
    }
    write_stores(full);
    w_.line("br label %head" + p);

    w_.line("tail" + p + ":");
    w_.line("%is_left" + p + " = icmp ult i64 %i" + p + ", %elements");
    w_.line("br i1 %is_left" + p + ", label %rest" + p + ", label %done" + p);

    w_.line("rest" + p + ":");
    const std::string left = w_.value("sub i64 %elements, %i" + p);
    const std::string narrow = w_.value("trunc i64 " + left + " to i32");
    Body rest{pass,
              "%i" + p,
              w_.value("icmp ult " + w_.vector("i32") + " " + w_.lane_numbers("i32") + ", " + w_.splat("i32", narrow)),
              {}};
    for (const uint32_t fold : folds) {
      const std::string f = std::to_string(fold);
      const std::string all = folded(rest, fold, "%fold" + f);
      w_.line("%last" + f + " = select " + w_.vector("i1") + " " + rest.mask + ", " + type_of(fold) + " " + all + ", " +
              type_of(fold) + " %fold" + f);
    }
    write_stores(rest);
    w_.line("br label %done" + p);

    w_.line("done" + p + ":");
    for (const uint32_t fold : folds) {
      const std::string f = std::to_string(fold);
      w_.line("%lanes" + f + " = phi " + type_of(fold) + " [ %fold" + f + ", %tail" + p + " ], [ %last" + f + ", %rest" + p +
              " ]");
    }
    for (const uint32_t fold : folds) {
      row_values_[fold] = w_.fold_lanes(combining(fold), program_.code[fold].type, named("%lanes", fold));
    }
    write_row_values(pass + 1);
    w_.line("br label %" + (pass + 1 < schedule_.passes ? named("pass", pass + 1) : "row_end"));
  }

  void write_unrolled(uint32_t pass, const std::vector<uint32_t>& folds) {
    const std::string p = std::to_string(pass);
    const auto part = [](const char* prefix, uint32_t fold, size_t k) {
      return named(prefix, fold) + "_" + std::to_string(k);
    };
    w_.line("many" + p + ":");
    w_.line("%many_i" + p + " = phi i64 [ 0, %pass" + p + " ], [ %many_after" + p + ", %many_body" + p + " ]");
    for (const uint32_t fold : folds) {
      for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
        w_.line(part("%part", fold, k) + " = phi " + type_of(fold) + " [ " + start_of(fold) + ", %pass" + p + " ], [ " +
                part("%more_of_part", fold, k) + ", %many_body" + p + " ]");
      }
    }
    w_.line("%many_after" + p + " = add i64 %many_i" + p + ", " + std::to_string(cost_model::kUnrolledVectors * w_.lanes()));
    w_.line("%many_fit" + p + " = icmp ule i64 %many_after" + p + ", %elements");
    w_.line("br i1 %many_fit" + p + ", label %many_body" + p + ", label %joined" + p);

    w_.line("many_body" + p + ":");
    for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
      Body full{pass, w_.value("add i64 %many_i" + p + ", " + std::to_string(k * w_.lanes())), "", {}};
      for (const uint32_t fold : folds) {
        w_.line(part("%more_of_part", fold, k) + " = bitcast " + type_of(fold) + " " +
                folded(full, fold, part("%part", fold, k)) + " to " + type_of(fold));
      }
      write_stores(full);
    }
    w_.line("br label %many" + p);

    w_.line("joined" + p + ":");
    for (const uint32_t fold : folds) {
      std::array<std::string, cost_model::kUnrolledVectors> parts;
      for (size_t k = 0; k < cost_model::kUnrolledVectors; ++k) {
        parts[k] = part("%part", fold, k);
      }
      for (size_t distance = cost_model::kUnrolledVectors / 2; distance > 0; distance /= 2) {
        for (size_t k = 0; k < distance; ++k) {
          parts[k] = w_.compute(combining(fold), program_.code[fold].type, {parts[k], parts[k + distance], ""});
        }
      }
      joined_[fold] = parts[0];
    }
    w_.line("br label %head" + p);
  }

  std::string type_of(uint32_t fold) const { return w_.vector(LlvmWriter::register_type(program_.code[fold].type)); }
  MachineOp combining(uint32_t fold) const {
    switch (program_.code[fold].op) {
      case MachineOp::kSum: return MachineOp::kAdd;
      case MachineOp::kProduct: return MachineOp::kMul;
      case MachineOp::kSmallest: return MachineOp::kMin;
      default: return MachineOp::kMax;
    }
  }
  std::string start_of(uint32_t fold) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const MachineOp op = program_.code[fold].op;
    return w_.literal({.op = MachineOp::kLiteral,
                       .type = program_.code[fold].type,
                       .literal = op == MachineOp::kSum        ? 0
                                  : op == MachineOp::kProduct  ? 1
                                  : op == MachineOp::kSmallest ? kInfinity
                                                               : -kInfinity});
  }
  std::string folded(Body& body, uint32_t fold, const std::string& so_far) {
    const Instruction& each = program_.code[fold];
    return w_.compute(combining(fold), each.type, {so_far, value_of(body, each.a), ""});
  }

  // ---- values

  // Writes what is known of the row after `stage` passes, and the outputs that are.
  void write_row_values(uint32_t stage) {
    for (uint32_t i = 0; i < program_.code.size(); ++i) {
      const Instruction& each = program_.code[i];
      if (schedule_.is_of_row[i] && schedule_.stage[i] == stage && !is_fold(each.op)) {
        const std::array<uint32_t, 3> numbers = {each.a, each.b, each.c};
        std::array<std::string, 3> operands;
        for (size_t k = 0; k < operand_count(each.op); ++k) {
          operands[k] = row_values_.at(numbers[k]);
        }
        row_values_[i] = computed(each, operands);
      }
    }
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const KernelOutput& output = program_.outputs[k];
      if (output.access == Access::kOne && schedule_.is_of_row[output.value] && schedule_.stage[output.value] == stage) {
        const std::string element = LlvmWriter::memory_type(output.type);
        const std::string lanes = w_.to_memory(row_values_.at(output.value), output.type);
        const std::string first = w_.value("extractelement " + w_.vector(element) + " " + lanes + ", i64 0");
        w_.line("store " + element + " " + first + ", ptr " + named("%p", program_.inputs.size() + k) + ", align " +
                std::to_string(c10::elementSize(output.type)));
      }
    }
  }

  std::string computed(const Instruction& each, const std::array<std::string, 3>& operands) {
    switch (each.op) {
      case MachineOp::kLoad: {  // one for the row
        const std::string element = LlvmWriter::memory_type(each.type);
        const std::string one = w_.value("load " + element + ", ptr " + named("%p", each.index) + ", align 1");
        return w_.from_memory(w_.splat(element, one), each.type);
      }
      case MachineOp::kNumber: return numbers_[each.index];
      case MachineOp::kLiteral: return w_.literal(each);
      case MachineOp::kRowLength:
        return w_.splat(LlvmWriter::register_type(each.type), each.type == at::kDouble ? "%length64" : "%length32");
      case MachineOp::kConvert: return w_.convert(operands[0], program_.code[each.a].type, each.type);
      case MachineOp::kCall:
      case MachineOp::kCallOfTwo:
        return w_.call_for_each_lane(symbol_of(scalar_functions()[each.index], each.type), each.type, operand_count(each.op),
                                     operands);
      default: return w_.compute(each.op, program_.code[each.op == MachineOp::kSelect ? each.b : each.a].type, operands);
    }
  }

  const std::string& value_of(Body& body, uint32_t value) {
    if (schedule_.is_of_row[value]) {
      return row_values_.at(value);
    }
    if (const auto known = body.values.find(value); known != body.values.end()) {
      return known->second;
    }
    const Instruction& each = program_.code[value];
    const auto buffer = schedule_.buffer_of(value);
    std::string result;
    if (buffer && schedule_.stage[value] < body.pass) {
      result = w_.from_memory(w_.load(each.type, address_of_buffer(body, *buffer), body.mask), each.type);
    } else if (each.op == MachineOp::kLoad) {
      result = load(body, each);
    } else {
      const std::array<uint32_t, 3> numbers = {each.a, each.b, each.c};
      std::array<std::string, 3> operands;
      for (size_t k = 0; k < operand_count(each.op); ++k) {
        operands[k] = value_of(body, numbers[k]);
      }
      result = computed(each, operands);
    }
    return body.values[value] = result;
  }

  // ---- memory

  std::string load(const Body& body, const Instruction& each) {
    if (program_.inputs[each.index].access == Access::kElements) {
      return w_.from_memory(w_.load(each.type, address(body, each.index, each.type), body.mask), each.type);
    }
    const std::string k = std::to_string(each.index);
    const std::string first = w_.value("mul i64 " + body.index + ", %stride" + k);
    const std::string offsets = w_.value("add " + w_.vector("i64") + " " + w_.splat("i64", first) + ", %lane_offsets" + k);
    const std::string addresses = w_.value("getelementptr i8, ptr %p" + k + ", " + w_.vector("i64") + " " + offsets);
    return w_.from_memory(w_.gather(each.type, addresses, body.mask), each.type);
  }

  // Computes all values first: an output may serve as a buffer that the value of another output is read from.
  void write_stores(Body& body) {
    struct Store {
      c10::ScalarType type;
      std::string value;
      std::string address;
    };
    std::vector<Store> stores;
    for (size_t k = 0; k < schedule_.buffers.size(); ++k) {
      const RowBuffer& buffer = schedule_.buffers[k];
      if (schedule_.stage[buffer.value] == body.pass) {
        const std::string value = w_.to_memory(value_of(body, buffer.value), buffer.type);
        stores.push_back({buffer.type, value, address_of_buffer(body, k)});
      }
    }
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const KernelOutput& output = program_.outputs[k];
      if (output.access == Access::kElements && schedule_.stage[output.value] == body.pass) {
        const std::string value = w_.to_memory(value_of(body, output.value), output.type);
        stores.push_back({output.type, value, address(body, program_.inputs.size() + k, output.type)});
      }
    }
    for (const Store& store : stores) {
      w_.store(store.type, store.value, store.address, body.mask);
    }
  }

  std::string address(const Body& body, size_t operand, c10::ScalarType type) {
    return w_.value("getelementptr " + LlvmWriter::memory_type(type) + ", ptr " + named("%p", operand) + ", i64 " +
                    body.index);
  }
  std::string address_of_buffer(const Body& body, size_t buffer) {
    const auto output = schedule_.buffers[buffer].output;
    const size_t operand =
        output ? program_.inputs.size() + *output : program_.inputs.size() + program_.outputs.size() + buffer;
    return address(body, operand, schedule_.buffers[buffer].type);
  }

  LlvmWriter w_;
  const KernelProgram& program_;
  const Schedule schedule_;
  const size_t operands_;
  std::vector<std::string> numbers_;
  std::map<uint32_t, std::string> row_values_;
  std::map<uint32_t, std::string> joined_;  // folds of the unrolled loop
};

}  // namespace

std::string llvm_text(const KernelProgram& program, size_t lanes) { return Function(program, lanes).text(); }

}  // namespace sconce
