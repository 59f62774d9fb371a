#include "fusion/cuda/cuda_text.h"

#include "base/assert.h"
#include "fusion/cuda/device_functions.h"
#include "fusion/program/scalar_functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

constexpr size_t kMaxBytesOfParameter = 4096;
constexpr size_t kBytesOfList = size_t{16} * 1024;  // of 32,764 that CUDA 12.1 and later allow

class CudaPrinter {
 public:
  explicit CudaPrinter(const GridProgram& grid) : grid_(grid) {}

  Expected<std::string> text() {
    for (const LoopStatement& each : grid_.statements) {
      print(each);
      if (!refusal_.empty()) {
        return Refusal::because(std::move(refusal_));
      }
    }
    if (has_shared_) {
      body_ = "  extern __shared__ __align__(16) char shared[];\n" + body_;
    }
    return std::string("typedef ") + (grid_.form.is_wide ? "long long" : "int") + " Index;\n" + device_prelude() +
           (calls_special_ ? special_device_functions() : "") + parameter_struct() +
           (grid_.form.has_list ? kernels_with_list() : kernel(kGridKernelName, "Arguments arguments", body_));
  }

 private:
  std::string kernel(const char* name, const std::string& parameter, const std::string& body) const {
    return "\nextern \"C\" __global__ void __launch_bounds__(" + std::to_string(grid_.form.threads) + ") " + name +
           "(const __grid_constant__ " + parameter + ") {\n" + body + "}\n";
  }

  std::string kernels_with_list() const {
    const std::string count = std::to_string(calls_of_list(grid_));
    return "\nstatic __device__ __forceinline__ void compute(const Arguments& arguments, unsigned block, unsigned blocks) "
           "{\n" +
           body_ + "}\n" + kernel(kGridKernelName, "Arguments arguments", "  compute(arguments, blockIdx.x, gridDim.x);\n") +
           "\nstruct List {\n  Arguments calls[" + count + "];\n  unsigned ends[" + count + "];\n  unsigned count;\n};\n" +
           kernel(kListKernelName, "List list", R"(  unsigned call = 0;
  for (unsigned last = list.count - 1; call < last;) {
    const unsigned middle = (call + last) / 2;
    if (blockIdx.x < list.ends[middle]) {
      last = middle;
    } else {
      call = middle + 1;
    }
  }
  const unsigned first = call == 0 ? 0 : list.ends[call - 1];
  compute(list.calls[call], blockIdx.x - first, list.ends[call] - first);
)");
  }

  std::string parameter_struct() const {
    const auto field = [](const char* type, const char* name, size_t count) {
      return count == 0 ? std::string() : std::string("  ") + type + " " + name + "[" + std::to_string(count) + "];\n";
    };
    const size_t operands = grid_.program.operand_count();
    return "\nstruct Arguments {\n" + field("char*", "first", operands) +
           field("long long", "numbers", grid_.program.numbers.size()) +
           field("const long long*", "number_memory", grid_.program.numbers.size()) + field("Index", "words", grid_.words) +
           "};\n";
  }

  c10::ScalarType type_of(LoopVariable variable) const { return grid_.types[variable]; }
  static std::string name(LoopVariable variable) { return "v" + std::to_string(variable); }
  // Numbers and words have no line of their own.
  std::string use(LoopVariable variable) const {
    const auto found = inline_.find(variable);
    return found == inline_.end() ? name(variable) : found->second;
  }

  void line(const std::string& text) { body_ += std::string(2 * depth_, ' ') + text + "\n"; }
  void define(const LoopStatement& each, const std::string& expression) {
    const bool is_assigned_later = each.op == LoopOp::kCompute && each.instruction.op == MachineOp::kLiteral;
    line((is_assigned_later ? "" : "const ") + device_type(type_of(each.results[0])) + " " + name(each.results[0]) + " = " +
         expression + ";");
  }

  void print(const LoopStatement& each) {
    const auto operand = [&](size_t i) { return use(each.operands[i]); };
    const std::string number = std::to_string(each.number);
    const auto binary = [&](const char* op) { define(each, operand(0) + " " + op + " " + operand(1)); };
    switch (each.op) {
      case LoopOp::kConstant: inline_[each.results[0]] = each.number < 0 ? "(" + number + ")" : number; return;
      case LoopOp::kWord: inline_[each.results[0]] = "arguments.words[" + number + "]"; return;
      case LoopOp::kThread: define(each, "threadIdx.x"); return;
      case LoopOp::kBlock: define(each, grid_.form.has_list ? "block" : "blockIdx.x"); return;
      case LoopOp::kBlocks: define(each, grid_.form.has_list ? "blocks" : "gridDim.x"); return;
      case LoopOp::kAddress: inline_[each.results[0]] = "arguments.first[" + number + "] + " + operand(0); return;
      case LoopOp::kSharedAddress:
        has_shared_ = true;
        inline_[each.results[0]] = "shared + " + operand(0);
        return;
      case LoopOp::kAdd: binary("+"); return;
      case LoopOp::kSubtract: binary("-"); return;
      case LoopOp::kMultiply: binary("*"); return;
      case LoopOp::kDivide: binary("/"); return;
      case LoopOp::kRemainder: binary("%"); return;
      case LoopOp::kQuotient:
        define(each, "static_cast<Index>(__umulhi(2u * static_cast<unsigned>(" + operand(0) + "), static_cast<unsigned>(" +
                         operand(1) + ")) >> " + operand(2) + ")");
        return;
      case LoopOp::kLess: binary("<"); return;
      case LoopOp::kLessOrEqual: binary("<="); return;
      case LoopOp::kBoth: binary("&&"); return;
      case LoopOp::kMinimum: define(each, "min(" + operand(0) + ", " + operand(1) + ")"); return;
      case LoopOp::kChoose: define(each, operand(0) + " ? " + operand(1) + " : " + operand(2)); return;
      case LoopOp::kIsAligned: define(each, is_aligned(each.number)); return;
      case LoopOp::kFor: {
        const std::string i = name(each.results[0]);
        if (each.number == 1) {
          line("#pragma unroll 1");
        }
        line("for (Index " + i + " = " + operand(0) + "; " + i + " < " + operand(1) + "; " + i + " += " + operand(2) +
             ") {");
        ++depth_;
        return;
      }
      case LoopOp::kIf:
        line("if (" + operand(0) + ") {");
        ++depth_;
        return;
      case LoopOp::kEnd:
        --depth_;
        line("}");
        return;
      case LoopOp::kBarrier: line("__syncthreads();"); return;
      case LoopOp::kLoad: print_load(each, operand(0)); return;
      case LoopOp::kStore: print_store(each, operand(0)); return;
      case LoopOp::kShuffle: define(each, "__shfl_xor_sync(0xFFFFFFFFu, " + operand(0) + ", " + number + ")"); return;
      case LoopOp::kParameter: print_parameter(each); return;
      case LoopOp::kLength: define(each, "static_cast<" + type_name(each.results[0]) + ">(" + operand(0) + ")"); return;
      case LoopOp::kAssign: line(name(each.results[0]) + " = " + operand(0) + ";"); return;
      case LoopOp::kCompute: print_compute(each); return;
      case LoopOp::kLoop:
      case LoopOp::kWhile:
      case LoopOp::kLoadLanes:
      case LoopOp::kStoreLanes:
      case LoopOp::kStoreOnce: SCONCE_ASSERT(false, "no statement of a grid"); return;
    }
  }

  std::string is_aligned(int64_t elements) const {
    std::string bits;
    for (size_t k = 0; k < grid_.program.operand_count(); ++k) {
      if (grid_.program.access_of_operand(k) == Access::kElements) {
        const auto bytes = static_cast<int64_t>(c10::elementSize(grid_.program.type_of_operand(k))) * elements;
        bits += (bits.empty() ? "" : " | ") +
                ("(reinterpret_cast<unsigned long long>(arguments.first[" + std::to_string(k)) + "]) & " +
                std::to_string(bytes - 1) + ")";
      }
    }
    return "(" + bits + ") == 0";
  }

  std::string type_name(LoopVariable variable) const { return device_type(type_of(variable)); }
  static std::string memory_type(c10::ScalarType type) { return type == at::kBool ? "unsigned char" : device_type(type); }
  static std::string vector_type(c10::ScalarType type, size_t count) {
    return count == 1 ? memory_type(type) : "Vector<" + memory_type(type) + ", " + std::to_string(count) + ">";
  }

  void print_load(const LoopStatement& each, const std::string& place) {
    const c10::ScalarType type = type_of(each.results[0]);
    const std::string from_memory = type == at::kBool ? " != 0" : "";
    const size_t count = each.results.size();
    const std::string loaded = "*reinterpret_cast<const " + vector_type(type, count) + "*>(" + place + ")";
    if (count == 1) {
      define(each, loaded + from_memory);
      return;
    }
    const std::string all = "all" + std::to_string(each.results[0]);
    line("const " + vector_type(type, count) + " " + all + " = " + loaded + ";");
    for (size_t i = 0; i < count; ++i) {
      line("const " + device_type(type) + " " + name(each.results[i]) + " = " + all + ".at[" + std::to_string(i) + "]" +
           from_memory + ";");
    }
  }

  void print_store(const LoopStatement& each, const std::string& place) {
    const c10::ScalarType type = type_of(each.operands[1]);
    const size_t count = each.operands.size() - 1;
    std::string values;
    for (size_t i = 1; i <= count; ++i) {
      values += (i == 1 ? "" : ", ") + use(each.operands[i]);
    }
    line("*reinterpret_cast<" + vector_type(type, count) + "*>(" + place +
         ") = " + (count == 1 ? values : vector_type(type, count) + "{{" + values + "}}") + ";");
  }

  void print_parameter(const LoopStatement& each) {
    const std::string index = "[" + std::to_string(each.number) + "]";
    const std::string word = "(arguments.number_memory" + index + " != nullptr ? *arguments.number_memory" + index +
                             " : arguments.numbers" + index + ")";
    const c10::ScalarType type = type_of(each.results[0]);
    define(each, c10::isFloatingType(type) ? "static_cast<" + device_type(type) + ">(__longlong_as_double(" + word + "))"
                 : type == at::kBool       ? word + " != 0"
                                           : "static_cast<" + device_type(type) + ">(" + word + ")");
  }

  void print_compute(const LoopStatement& each) {
    std::array<std::string, 3> operands;
    for (size_t i = 0; i < each.operands.size(); ++i) {
      operands[i] = use(each.operands[i]);
    }
    // The type of what is selected.
    const size_t typed = each.instruction.op == MachineOp::kSelect ? 1 : 0;
    const c10::ScalarType type = each.operands.empty() ? each.instruction.type : type_of(each.operands[typed]);
    calls_special_ = calls_special_ || (is_call(each.instruction.op) &&
                                        is_special_device_function(scalar_functions()[each.instruction.index].name));
    if (const auto expression = device_expression(each.instruction, type, operands)) {
      define(each, *expression);
    } else {
      refusal_ = "there is no function of CUDA for " + std::string(scalar_functions()[each.instruction.index].name);
    }
  }

  const GridProgram& grid_;
  std::string body_;
  std::string refusal_;
  std::unordered_map<LoopVariable, std::string> inline_;
  size_t depth_ = 1;
  bool has_shared_ = false;
  bool calls_special_ = false;
};

}  // namespace

size_t bytes_of_parameter(const GridProgram& grid) {
  const size_t words = (grid.form.is_wide ? 8 : 4) * grid.words;
  return 8 * (grid.program.operand_count() + 2 * grid.program.numbers.size()) + (words + 7) / 8 * 8;
}

size_t calls_of_list(const GridProgram& grid) {
  return std::max<size_t>(kBytesOfList / (bytes_of_parameter(grid) + sizeof(uint32_t)), 1);
}

Expected<std::string> cuda_text(const GridProgram& grid) {
  if (bytes_of_parameter(grid) > kMaxBytesOfParameter) {
    return Refusal::because("its operands have too many sizes and strides for the parameters of a CUDA kernel");
  }
  return CudaPrinter(grid).text();
}

std::vector<char> parameter_of(const GridProgram& grid, std::span<void* const> first, std::span<const int64_t> numbers,
                               std::span<const void* const> number_memory, std::span<const int64_t> words) {
  std::vector<char> bytes(bytes_of_parameter(grid));
  char* at = bytes.data();
  const auto append = [&at](const auto& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  for (void* const address : first) {
    append(address);
  }
  for (const int64_t number : numbers) {
    append(number);
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    append(number_memory.empty() ? nullptr : number_memory[i]);
  }
  for (const int64_t word : words) {
    if (grid.form.is_wide) {
      append(word);
    } else {
      append(static_cast<int32_t>(word));
    }
  }
  return bytes;
}

std::vector<char> parameter_of_list(const GridProgram& grid, std::span<const ListedCall> calls) {
  const size_t most = calls_of_list(grid);
  const size_t each = bytes_of_parameter(grid);
  std::vector<char> bytes((most * (each + sizeof(uint32_t)) + sizeof(uint32_t) + 7) / 8 * 8);
  char* const ends = bytes.data() + most * each;
  uint32_t end = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::copy(calls[i].parameter.begin(), calls[i].parameter.end(), bytes.data() + i * each);
    end += calls[i].blocks;
    std::memcpy(ends + i * sizeof end, &end, sizeof end);
  }
  const auto count = static_cast<uint32_t>(calls.size());
  std::memcpy(ends + most * sizeof end, &count, sizeof count);
  return bytes;
}

}  // namespace sconce
