// The CPU code generator: LLVM IR text in, callable code out.
#include "fusion/cpu/cpu_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sconce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// out[i] = a[i] + b[i] for n floats, n a multiple of 16.
const char* const kVectorAdd = R"(
define void @add(ptr %a, ptr %b, ptr %out, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %x = load <16 x float>, ptr %pa, align 4
  %y = load <16 x float>, ptr %pb, align 4
  %z = fadd <16 x float> %x, %y
  store <16 x float> %z, ptr %po, align 4
  %next = add i64 %i, 16
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
)";
using VectorAdd = void (*)(const float*, const float*, float*, int64_t);

std::shared_ptr<const KernelCode> compiled(const KernelText& kernel) {
  auto code = compile_cpu_kernel(kernel);
  EXPECT_TRUE(code) << code.refusal().reason;
  return code ? *code : nullptr;
}

std::string refusal_of(const KernelText& kernel) {
  const auto code = compile_cpu_kernel(kernel);
  EXPECT_FALSE(code) << "it compiled";
  return code ? "" : code.refusal().reason;
}

template <typename Function>
Function function_of(const KernelCode& code, const char* name) {
  return reinterpret_cast<Function>(code.address(name));
}

size_t live_kernels() { return (*cpu_kernel_compiler())->live_kernels(); }

bool is_mapped(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream fields(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    const auto value = reinterpret_cast<uintptr_t>(address);
    if (value >= begin && value < end) {
      return true;
    }
  }
  return false;
}

void expect_adds(const KernelCode& code, float offset) {
  std::vector<float> a(1024);
  std::vector<float> b(1024);
  std::vector<float> out(1024, -1.0F);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = float(i);
    b[i] = offset + 0.5F * float(i);
  }
  function_of<VectorAdd>(code, "add")(a.data(), b.data(), out.data(), int64_t(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(out[i], a[i] + b[i]) << i;
  }
}

TEST(CpuKernels, CompilesAVectorAdditionFromText) {
  const auto code = compiled({kVectorAdd, {"add"}});
  ASSERT_NE(code, nullptr);
  EXPECT_GT(code->bytes(), 0U);
  EXPECT_EQ(code->address("other"), nullptr);
  expect_adds(*code, 3.0F);
}

TEST(CpuKernels, GivesTheSameWithTheO2Pipeline) {
  const auto code = compiled({kVectorAdd, {"add"}, /*optimize=*/true});
  ASSERT_NE(code, nullptr);
  expect_adds(*code, -7.0F);
}

TEST(CpuKernels, NamesTheProcessor) { EXPECT_THAT((*cpu_kernel_compiler())->processor(), HasSubstr("+sse2")); }

TEST(CpuKernels, FreesTheCodeWithItsLastOwner) {
  const size_t before = live_kernels();
  auto code = compiled({kVectorAdd, {"add"}});
  auto second_owner = code;
  const void* address = code->address("add");
  code.reset();
  EXPECT_EQ(live_kernels(), before + 1);
  EXPECT_TRUE(is_mapped(address));
  second_owner.reset();
  EXPECT_EQ(live_kernels(), before);
  EXPECT_FALSE(is_mapped(address));
}

TEST(CpuKernels, MayUseTheSameNamesInManyKernels) {
  const auto returning = [](const std::string& number) {
    return KernelText{"@table = constant i64 " + number +
                          "\n"
                          "define i64 @helper() {\n  %v = load i64, ptr @table\n  ret i64 %v\n}\n"
                          "define i64 @kernel() {\n  %v = call i64 @helper()\n  ret i64 %v\n}\n",
                      {"kernel"}};
  };
  const auto one = compiled(returning("1"));
  const auto two = compiled(returning("2"));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(function_of<int64_t (*)()>(*one, "kernel")(), 1);
  EXPECT_EQ(function_of<int64_t (*)()>(*two, "kernel")(), 2);
}

TEST(CpuKernels, FindsFunctionsOfTheProcess) {
  const auto code =
      compiled({"declare double @cbrt(double)\n"
                "define double @kernel(double %x) {\n"
                "  %y = call double @cbrt(double %x)\n  ret double %y\n}\n",
                {"kernel"}});
  ASSERT_NE(code, nullptr);
  volatile double ten = 10.0;  // computed here too, and not by the C++ compiler
  EXPECT_EQ(function_of<double (*)(double)>(*code, "kernel")(ten), std::cbrt(ten));
}

// "fmul contract" may be fused by IR's own rules, a plain product and sum never; `llvm.fma` always is.
TEST(CpuKernels, FusesAProductAndASumOnlyWhereTold) {
  const std::string head = "define float @kernel(float %a, float %b, float %c) {\n";
  const auto plain =
      compiled({head + "  %p = fmul float %a, %b\n  %s = fadd float %p, %c\n  ret float %s\n}\n", {"kernel"}});
  const auto fused = compiled({"declare float @llvm.fma.f32(float, float, float)\n" + head +
                                   "  %s = call float @llvm.fma.f32(float %a, float %b, float %c)\n  ret float %s\n}\n",
                               {"kernel"}});
  ASSERT_TRUE(plain && fused);
  const float a = 1.0F + 0x1p-12F;
  const float c = -(1.0F + 0x1p-11F);  // a*a + c: the exact square's last bit is lost by rounding the product
  using Kernel = float (*)(float, float, float);
  EXPECT_EQ(function_of<Kernel>(*plain, "kernel")(a, a, c), 0.0F);
  EXPECT_EQ(function_of<Kernel>(*fused, "kernel")(a, a, c), 0x1p-24F);
}

TEST(CpuKernels, RefusesTextThatIsNoIrAndNamesTheLine) {
  const std::string reason = refusal_of({"define void @kernel() {\n  %x = bogus i32 1\n  ret void\n}\n", {"kernel"}});
  EXPECT_THAT(reason, HasSubstr("line 2"));
  EXPECT_THAT(reason, HasSubstr("bogus"));
}

TEST(CpuKernels, RefusesIrThatTheVerifierRejects) {
  const std::string reason =
      refusal_of({"define i32 @kernel(i1 %c) {\n"
                  "entry:\n  br i1 %c, label %a, label %b\n"
                  "a:\n  %x = add i32 1, 2\n  br label %b\n"
                  "b:\n  ret i32 %x\n}\n",
                  {"kernel"}});
  EXPECT_THAT(reason, HasSubstr("does not dominate"));
}

TEST(CpuKernels, RefusesAMissingFunction) { EXPECT_THAT(refusal_of({kVectorAdd, {"mul"}}), HasSubstr("no function 'mul'")); }

TEST(CpuKernels, RefusesACallOfSomethingUnknown) {
  const size_t before = live_kernels();
  const KernelText kernel{
      "declare void @sconce_no_such_function()\n"
      "define void @kernel() {\n  call void @sconce_no_such_function()\n  ret void\n}\n",
      {"kernel"}};
  EXPECT_THAT(refusal_of(kernel), HasSubstr("sconce_no_such_function"));
  EXPECT_EQ(live_kernels(), before);
}

TEST(CpuKernels, RefusesAnUnknownProcessor) {
  KernelText kernel{kVectorAdd, {"add"}};
  kernel.processor = "x86-64-v99";
  EXPECT_THAT(refusal_of(kernel), HasSubstr("no processor 'x86-64-v99'"));
}

// Code for a processor without AVX uses none of its registers.
TEST(CpuKernels, CompilesForTheProcessorThatIsNamed) {
  KernelText kernel{kVectorAdd, {"add"}};
  const auto assembly_for = [&](const char* processor) {
    kernel.processor = processor;
    const auto assembly = (*cpu_kernel_compiler())->assembly(kernel);
    return assembly ? *assembly : assembly.refusal().reason;
  };
  EXPECT_THAT(assembly_for("x86-64-v4"), HasSubstr("%zmm"));
  EXPECT_THAT(assembly_for("x86-64-v3"), AllOf(HasSubstr("%ymm"), Not(HasSubstr("%zmm"))));
  EXPECT_THAT(assembly_for("x86-64"), AllOf(HasSubstr("%xmm"), Not(HasSubstr("%ymm"))));
  kernel.processor = "x86-64";
  const auto code = compiled(kernel);
  ASSERT_NE(code, nullptr);
  expect_adds(*code, 3.0F);
}

TEST(CpuKernels, RefusesWhatCodeGenerationRejects) {
  const KernelText kernel{
      "define void @kernel() {\n  call void asm sideeffect \"no_such_instruction\", \"\"()\n  ret void\n}\n", {"kernel"}};
  EXPECT_THAT(refusal_of(kernel), HasSubstr("invalid instruction"));
  EXPECT_NE(compiled({kVectorAdd, {"add"}}), nullptr) << "the next kernel compiles";
}

TEST(CpuKernels, CompilesInManyThreadsAtOnce) {
  const size_t before = live_kernels();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < 8; ++round) {
        const auto code = compiled({kVectorAdd, {"add"}, round % 2 == 1});
        ASSERT_NE(code, nullptr);
        expect_adds(*code, float(thread * 8 + round));
        EXPECT_THAT(refusal_of({"define nonsense", {"add"}}), HasSubstr("line 1"));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(live_kernels(), before);
}

}  // namespace
}  // namespace sconce
