// Programs of kernels as grids of threads, beside the interpreter of the programs.
#include "tests/fusion/element_values.h"
#include "tests/fusion/group_generator.h"
#include "tests/fusion/kernel_call.h"
#include "tests/fusion/program_call.h"
#include "tests/simulated_gpu/printed_kernels.h"
#include "tests/support/environment_number.h"
#include "tests/support/loop_interpreter.h"
#include "tests/support/part.h"
#include "tests/support/softmax_program.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/grid_arguments.h"
#include "fusion/cuda/reciprocal.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/scalar_functions.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using Type = c10::ScalarType;

// Few blocks, so that some thread takes several turns.
constexpr DeviceLimits kSmallDevice{.multiprocessors = 1, .shared_bytes = 48 * 1024};

std::string to_string(const GridForm& form) {
  return std::to_string(form.threads) + " threads, " + std::to_string(form.lanes) + " for a row, " +
         std::to_string(form.vector) + " elements at a time, " + std::to_string(form.dims) + " dimensions" +
         (form.has_segments ? ", segments" : "") + (form.has_buffers ? ", buffers" : "") +
         (form.trips > 0 ? ", " + std::to_string(form.trips) + " turns" : "") + (form.is_wide ? ", wide" : "");
}

// Runs the grid, in blocks of few threads if `form` says so.
void expect_agreement(const KernelProgram& program, ProgramCall& call, const Iteration& iteration, const GridForm& form,
                      uint32_t most_blocks) {
  const GridProgram grid = grid_program(program, form);
  const auto got = call.computed([&](const KernelCallFrame& frame) {
    LaunchShape shape = launch_shape(grid, iteration, kSmallDevice);
    shape.grid[0] = std::min(shape.grid[0], most_blocks);
    const LoopCall launched{frame.operands, frame.numbers, words_of(form, iteration)};
    LoopInterpreter(grid, shape, launched, form.is_wide).run();
  });
  ASSERT_NO_FATAL_FAILURE(expect_close(program, call, got, /*fuses=*/true, to_string(form)));
}

std::vector<void*> first_of(ProgramCall& call) {
  std::vector<void*> first;
  call.computed([&](const KernelCallFrame& frame) { first = frame.operands; });
  return first;
}

// The form that is chosen, and others that would be right, too.
std::set<std::tuple<uint32_t, uint32_t, bool, bool>> variants_of(const GridForm& chosen, int64_t row) {
  std::set<std::tuple<uint32_t, uint32_t, bool, bool>> variants;
  variants.insert({chosen.threads, chosen.lanes, chosen.has_buffers, chosen.is_wide});
  const bool has_kept = chosen.has_buffers || chosen.trips > 0;
  variants.insert({64, std::min(chosen.lanes, 64U), chosen.has_buffers, true});
  if (chosen.lanes > 0) {
    variants.insert({64, 64, false, false});
    variants.insert({64, 32, has_kept, false});
    if (row <= 64) {  // a thread that adds up more is not precise
      variants.insert({128, 1, chosen.has_buffers, false});
    }
    variants.insert({64, 4, chosen.has_buffers, false});
  }
  return variants;
}

void expect_agreement(const KernelProgram& program) {
  constexpr ProgramSizes kSizes[] = {{1, 1}, {1, 37}, {6, 2, 3}, {2, 8}, {4, 31, 2}, {70, 3}, {3, 300, 2}};
  for (const ProgramSizes& sizes : kSizes) {
    for (const int64_t gap : {3, 0}) {
      ProgramCall call(program, sizes, static_cast<uint64_t>(sizes.elements), gap);
      const Iteration iteration = call.iteration(/*splits=*/2);
      const GridForm chosen = choose_form(program, iteration, first_of(call), kSmallDevice);
      for (const auto& [threads, lanes, has_buffers, is_wide] : variants_of(chosen, sizes.elements * sizes.segments)) {
        GridForm form = chosen;
        form.threads = threads;
        form.lanes = lanes;
        form.trips =
            threads == chosen.threads && lanes == chosen.lanes && has_buffers == chosen.has_buffers ? chosen.trips : 0;
        form.has_buffers = has_buffers;
        form.is_wide = is_wide;
        ASSERT_NO_FATAL_FAILURE(expect_agreement(program, call, iteration, form, 2)) << to_string(sizes);
        ASSERT_FALSE(::testing::Test::HasFailure()) << to_string(sizes) << ", " << to_string(form) << "\n" << program.text();
      }
    }
  }
}

bool has_device_text(const KernelProgram& program) {
  return static_cast<bool>(cuda_text(grid_program(program, {.lanes = 0})));
}

// The programs of generated groups that no kernel of the process has yet, each once: other tests have other seeds.
std::vector<KernelProgram> programs_of_groups(const Seeds& seeds) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  std::set<std::string> seen;
  for (const auto& kernel : KernelCache::instance().kernels()) {
    seen.insert(kernel->text());
  }
  CountedKernels kernels(kernel_lanes());
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    GroupGenerator generator(seed, GroupGenerator::Contents::kAll);
    const auto plan = plan_with_kernels(generator.text(), kernels);
    results_of(*plan, generator.operands(5, 13));
  }
  std::vector<KernelProgram> programs;
  for (const auto& kernel : KernelCache::instance().kernels()) {
    if (seen.insert(kernel->text()).second) {
      programs.push_back(kernel->program());
    }
  }
  return programs;
}

TEST(GridPrograms, AgreeWithTheInterpreterOnGeneratedGroups) {
  const Seeds seeds = seeds_in_part({2001, environment_number("SCONCE_GROUPS", 40)});
  const std::vector<KernelProgram> programs = programs_of_groups(seeds);
  EXPECT_GT(programs.size(), seeds.count / 3);
  for (const KernelProgram& program : programs) {
    ASSERT_NO_FATAL_FAILURE(expect_agreement(program));
  }
}

// Returns whether the C library has all functions of the text. Those that only CUDA has are all of special_functions_test.
bool has_functions_of_host(const std::string& text) {
  constexpr std::array<const char*, 4> kOfCudaAlone = {"cyl_bessel_i", "erfcx", "erfinv", "normcdfinv"};
  return std::none_of(kOfCudaAlone.begin(), kOfCudaAlone.end(),
                      [&](const char* name) { return text.find(name) != std::string::npos; });
}

// Returns whether the text could run.
bool expect_agreement_as_printed(const KernelProgram& program, const ProgramSizes& sizes) {
  ProgramCall call(program, sizes, /*seed=*/1);
  const Iteration iteration = call.iteration();
  const GridForm form = choose_form(program, iteration, first_of(call), kSmallDevice);
  const GridProgram grid = grid_program(program, form);
  const auto text = cuda_text(grid);
  if (!text || !has_functions_of_host(*text)) {
    return false;
  }
  const auto printed = printed_kernel(*text, kGridKernelName, bytes_of_parameter(grid));
  const auto got = call.computed([&](const KernelCallFrame& frame) {
    const LaunchShape shape = launch_shape(grid, iteration, kSmallDevice);
    const cuda::LaunchDimensions dimensions{{shape.grid[0]}, {shape.block[0]}, shape.shared_bytes};
    std::vector<char> parameter = parameter_of(grid, frame.operands, frame.numbers, {}, words_of(form, iteration));
    std::array<void*, 1> arguments = {parameter.data()};
    printed.kernel(dimensions, arguments.data());
  });
  expect_close(program, call, got, /*fuses=*/true, "printed, " + to_string(form));
  return true;
}

// SCONCE_GROUPS=2000 SCONCE_PRINTED_PROGRAMS=2000 runs those of many groups: half a second each.
TEST(GridPrograms, AgreeAsPrinted) {
  const uint64_t count = environment_number("SCONCE_PRINTED_PROGRAMS", 12);
  const Seeds seeds = seeds_in_part({3001, environment_number("SCONCE_GROUPS", 40)});
  const std::vector<KernelProgram> programs = programs_of_groups(seeds);
  const size_t stride = std::max<size_t>(programs.size() / count, 1);
  size_t run = 0;
  for (size_t i = 0; i < programs.size(); i += stride) {
    for (const ProgramSizes& sizes : {ProgramSizes{4, 31, 2}, ProgramSizes{2, 8}}) {
      run += expect_agreement_as_printed(programs[i], sizes) ? 1 : 0;
      ASSERT_FALSE(::testing::Test::HasFailure()) << to_string(sizes) << "\n" << programs[i].text();
    }
  }
  EXPECT_GT(run, 5U);
}

TEST(GridPrograms, AgreeOnSoftmax) {
  for (const LoopOrder order : {LoopOrder::kRows, LoopOrder::kSegments, LoopOrder::kColumns}) {
    for (const Type type : {at::kFloat, at::kDouble}) {
      ASSERT_NO_FATAL_FAILURE(expect_agreement(softmax_program(order, type)));
    }
  }
}

TEST(GridPrograms, LoadNeighborsAtOnceWhereTheyAreAligned) {
  const KernelProgram program = softmax_program(LoopOrder::kRows);
  const auto vector_of = [&](int64_t elements, int64_t gap) {
    ProgramCall call(program, {4, elements}, 1, gap);
    return choose_form(program, call.iteration(), first_of(call), {}).vector;
  };
  EXPECT_EQ(vector_of(8, 0), 4U);
  EXPECT_EQ(vector_of(6, 0), 2U);
  EXPECT_EQ(vector_of(7, 0), 1U);
  EXPECT_EQ(vector_of(8, 3), 1U) << "rows begin in between";
}

// y = 2 x.
KernelProgram doubling() {
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kElements}};
  program.code = {{.op = MachineOp::kLoad, .type = at::kFloat, .index = 0},
                  {.op = MachineOp::kAdd, .type = at::kFloat, .a = 0, .b = 0}};
  program.outputs = {{at::kFloat, 1}};
  return program;
}

TEST(GridPrograms, TakeARestAndWhatIsNotAlignedOneByOne) {
  const KernelProgram program = doubling();
  for (const int64_t elements : {1, 3, 4, 1027, 4096}) {
    for (const int64_t skipped : {0, 1, 2}) {
      const at::Tensor x = at::randn({elements + skipped}).slice(0, skipped);
      const at::Tensor found = at::full({elements}, NAN);
      Iteration iteration;
      iteration.sizes = {elements};
      iteration.strides = {{4}, {4}};
      iteration.segment_strides = {0, 0};
      const std::vector<void*> first = {x.mutable_data_ptr(), found.mutable_data_ptr()};
      const GridForm form = choose_form(program, iteration, first, kSmallDevice);
      EXPECT_EQ(form.vector, 4U);
      const GridProgram grid = grid_program(program, form);
      LoopInterpreter(grid, launch_shape(grid, iteration, kSmallDevice), {first, {}, words_of(form, iteration)},
                      form.is_wide)
          .run();
      EXPECT_TRUE(at::equal(found, x + x)) << elements << " elements after " << skipped;
    }
  }
}

TEST(GridPrograms, TextOfAListHasTwoKernels) {
  GridForm form;
  form.vector = 4;
  form.has_list = true;
  const GridProgram grid = grid_program(doubling(), form);
  const std::string text = *cuda_text(grid);
  EXPECT_THAT(text, HasSubstr("sconce_kernel(const __grid_constant__ Arguments"));
  EXPECT_THAT(text, HasSubstr("sconce_kernel_of_list(const __grid_constant__ List"));
  EXPECT_GT(calls_of_list(grid), 50U);
  EXPECT_LE(parameter_of_list(grid, {}).size(), 32764U);
}

TEST(GridPrograms, ShareARowAmongMoreThreadsIfItIsLonger) {
  const KernelProgram program = softmax_program(LoopOrder::kRows);
  const auto form_of = [&](int64_t elements) {
    ProgramCall call(program, {4, elements}, 1, 0);
    return choose_form(program, call.iteration(), first_of(call), {});
  };
  EXPECT_EQ(form_of(1).lanes, 1U);
  EXPECT_EQ(form_of(64).lanes, 16U);
  EXPECT_EQ(form_of(4096).lanes, 256U);
  EXPECT_EQ(form_of(4096).trips, 4U);
  EXPECT_FALSE(form_of(4096).has_buffers) << "values are in registers";
  EXPECT_FALSE(form_of(65536).has_buffers) << "shared memory is too small";
}

// Rows of 48 KiB and more take blocks of 1024 threads.
TEST(GridPrograms, KeepLongRowsInTheSharedMemoryThatTheDeviceHas) {
  constexpr DeviceLimits kLarge{.multiprocessors = 1, .shared_bytes = 227 * 1024};
  for (const LoopOrder order : {LoopOrder::kRows, LoopOrder::kSegments}) {
    const KernelProgram program = softmax_program(order);
    ProgramCall call(program, order == LoopOrder::kRows ? ProgramSizes{2, 13001} : ProgramSizes{2, 4301, 3}, 1, 3);
    const Iteration iteration = call.iteration();
    const GridForm form = choose_form(program, iteration, first_of(call), kLarge);
    EXPECT_EQ(form.threads, 1024U);
    EXPECT_EQ(form.lanes, 1024U);
    EXPECT_TRUE(form.has_buffers);
    EXPECT_GT(launch_shape(grid_program(program, form), iteration, kLarge).shared_bytes, 48U * 1024);
    ASSERT_NO_FATAL_FAILURE(expect_agreement(program, call, iteration, form, 1));
    EXPECT_FALSE(choose_form(program, iteration, first_of(call), {.shared_bytes = 48 * 1024}).has_buffers);
    EXPECT_EQ(choose_form(program, iteration, first_of(call), {.shared_bytes = 48 * 1024}).threads, 256U);
  }
}

TEST(GridPrograms, DivideByReciprocals) {
  constexpr int64_t kEnd = int64_t{1} << 31;
  std::vector<int64_t> divisors = {1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 100, 641, 12345, 1'000'003, kEnd / 2 + 1, kEnd / 3};
  for (int64_t power = 4; power <= kEnd; power *= 2) {
    divisors.insert(divisors.end(), {power - 1, power - 3});
    if (power < kEnd) {
      divisors.insert(divisors.end(), {power, power + 1});
    }
  }
  std::mt19937 random(1);
  for (const int64_t divisor : divisors) {
    const Reciprocal reciprocal = reciprocal_of(divisor);
    std::vector<int64_t> numbers = {0, 1, 2, kEnd - 1, kEnd - 2, (kEnd - 1) / divisor * divisor};
    for (int i = 0; i < 2000; ++i) {
      numbers.push_back(random() / 2);
      numbers.push_back(numbers.back() / divisor * divisor);
    }
    for (const int64_t number : numbers) {
      for (const int64_t each : {number - 1, number, number + 1}) {
        if (each >= 0 && each < kEnd) {
          ASSERT_EQ(quotient(each, reciprocal), each / divisor) << each << " / " << divisor;
        }
      }
    }
  }
}

// Elements of four dimensions; 64-bit indices are divided as they are.
TEST(GridPrograms, FindElementsInSeveralDimensions) {
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kStrided}};
  program.code = {{.op = MachineOp::kLoad, .type = at::kFloat, .index = 0}};
  program.outputs = {{at::kFloat, 0}};
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 3, 5, 7}, {4, 8, 16, 2}, {3, 1, 1, 5}, {2, 1, 31, 1}, {1, 1, 1, 1}}) {
    const at::Tensor x = at::randn({sizes[3], sizes[2], sizes[1], sizes[0]}).permute({3, 2, 1, 0});
    Iteration iteration;
    iteration.sizes = sizes;
    iteration.segment_strides = {0, 0};
    for (const at::IntArrayRef strides : {x.strides(), at::empty(sizes).strides()}) {
      iteration.strides.emplace_back();
      for (const int64_t stride : strides) {
        iteration.strides.back().push_back(stride * 4);
      }
    }
    for (const bool is_wide : {false, true}) {
      const at::Tensor found = at::full(sizes, NAN);
      GridForm form = choose_form(program, iteration, std::vector<void*>(2), kSmallDevice);
      form.is_wide = is_wide;
      const GridProgram grid = grid_program(program, form);
      const LaunchShape shape = launch_shape(grid, iteration, kSmallDevice);
      const LoopCall call{{x.mutable_data_ptr(), found.mutable_data_ptr()}, {}, words_of(form, iteration)};
      LoopInterpreter(grid, shape, call, form.is_wide).run();
      EXPECT_TRUE(at::equal(found, x)) << x.sizes() << is_wide;
      const std::string text = *cuda_text(grid);
      EXPECT_EQ(text.find("__umulhi") != std::string::npos, form.dims > 1 && !is_wide) << text;
    }
  }
}

TEST(GridPrograms, RefuseAFunctionThatCudaLacks) {
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kElements}};
  program.code = {{.op = MachineOp::kLoad, .type = at::kFloat, .index = 0},
                  {.op = MachineOp::kCall, .type = at::kFloat, .a = 0, .index = scalar_function("airy_ai")}};
  program.outputs = {{at::kFloat, 1}};
  EXPECT_FALSE(has_device_text(program));
  EXPECT_THAT(cuda_text(grid_program(program, {})).refusal().reason, HasSubstr("airy_ai"));
}

TEST(GridPrograms, TextShowsWhatThreadsDo) {
  GridForm form;
  form.vector = 4;
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kElements}, {at::kFloat, Access::kOne}};
  program.code = {{.op = MachineOp::kLoad, .type = at::kFloat, .index = 0},
                  {.op = MachineOp::kLoad, .type = at::kFloat, .index = 1},
                  {.op = MachineOp::kMul, .type = at::kFloat, .a = 0, .b = 1}};
  program.outputs = {{at::kFloat, 2}};
  const std::string text = *cuda_text(grid_program(program, form));
  EXPECT_THAT(text, HasSubstr("Vector<float, 4>"));
  EXPECT_THAT(text, HasSubstr("for (Index "));
  EXPECT_THAT(text, HasSubstr("extern \"C\" __global__ void __launch_bounds__(256) sconce_kernel("));
}

}  // namespace
}  // namespace sconce::testing
