// Machine code of GPU kernels, kept on disk.
#include "cuda/kept_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sconce::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A compiler whose machine code names what was compiled, and which counts.
class CountingNvrtc final : public Nvrtc {
 public:
  explicit CountingNvrtc(std::string version = "13.0") : version_(std::move(version)) {}
  Expected<Cubin> compile(const std::string& text, const std::string& architecture,
                          const std::vector<std::string>& options) const override {
    ++compiled;
    if (text == "wrong") {
      return Refusal::because("a syntax error");
    }
    return Cubin{"code of " + text + " for " + architecture + " by " + version_ + (options.empty() ? "" : options[0]), {}};
  }
  const std::string& version() const override { return version_; }
  const std::string& path() const override { return version_; }
  mutable size_t compiled = 0;

 private:
  const std::string version_;
};

class KeptCodeTest : public ::testing::Test {
 protected:
  KeptCodeTest() : directory_(fs::temp_directory_path() / ("sconce_cubins_" + std::to_string(::getpid()))) {
    fs::remove_all(directory_);
  }
  ~KeptCodeTest() override { fs::remove_all(directory_); }

  // Compiles as another process does: with a cache of its own.
  std::string code_of(const Nvrtc& nvrtc, const std::string& text, const std::string& architecture = "sm_90",
                      const std::vector<std::string>& options = {"--fmad=false"}) const {
    const auto code = compile_or_find(nvrtc, FileCache(directory_.string(), ".cubin"), text, architecture, options);
    return code ? *code : code.refusal().reason;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      found.push_back(entry.path());
    }
    return found;
  }

  const fs::path directory_;
};

TEST_F(KeptCodeTest, IsCompiledOnce) {
  const CountingNvrtc first;
  const std::string code = code_of(first, "x + y");
  EXPECT_EQ(code, "code of x + y for sm_90 by 13.0--fmad=false");
  EXPECT_EQ(first.compiled, 1U);
  const CountingNvrtc second;
  EXPECT_EQ(code_of(second, "x + y"), code);
  EXPECT_EQ(second.compiled, 0U);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(files().front().extension(), ".cubin");
}

TEST_F(KeptCodeTest, IsOfOneTextChipVersionAndSetOfOptions) {
  const CountingNvrtc nvrtc;
  code_of(nvrtc, "x + y");
  EXPECT_THAT(code_of(nvrtc, "x - y"), HasSubstr("x - y"));
  EXPECT_THAT(code_of(nvrtc, "x + y", "sm_80"), HasSubstr("sm_80"));
  EXPECT_THAT(code_of(nvrtc, "x + y", "sm_90", {"--fmad=true"}), HasSubstr("--fmad=true"));
  EXPECT_THAT(code_of(nvrtc, "x + y", "sm_90", {}), HasSubstr("13.0"));
  EXPECT_EQ(nvrtc.compiled, 5U);
  const CountingNvrtc newer("13.1");
  EXPECT_THAT(code_of(newer, "x + y"), HasSubstr("13.1"));
  EXPECT_EQ(newer.compiled, 1U);
  EXPECT_EQ(files().size(), 6U);
}

TEST_F(KeptCodeTest, IsRenewedIfAFileIsDamaged) {
  const CountingNvrtc nvrtc;
  const std::string code = code_of(nvrtc, "x + y");
  const fs::path file = files().front();
  const auto size = fs::file_size(file);
  for (const size_t kept : {size_t{0}, size_t{7}, size_t{30}, static_cast<size_t>(size - 1)}) {
    fs::resize_file(file, kept);
    EXPECT_EQ(code_of(nvrtc, "x + y"), code);
    EXPECT_EQ(fs::file_size(file), size);
  }
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(size) - 3).put('?');
  EXPECT_EQ(code_of(nvrtc, "x + y"), code);
  EXPECT_EQ(nvrtc.compiled, 6U);
  EXPECT_EQ(code_of(nvrtc, "x + y"), code);
  EXPECT_EQ(nvrtc.compiled, 6U);
}

TEST_F(KeptCodeTest, IsNotNeeded) {
  const CountingNvrtc nvrtc;
  EXPECT_EQ(code_of(nvrtc, "wrong"), "a syntax error");
  EXPECT_FALSE(fs::exists(directory_)) << "a refusal was kept";
  std::ofstream(directory_) << "a file in the place of the directory";
  EXPECT_THAT(code_of(nvrtc, "x"), HasSubstr("code of x"));
  const auto without_directory = compile_or_find(nvrtc, FileCache("", ".cubin"), "x", "sm_90", {});
  ASSERT_TRUE(without_directory);
  EXPECT_THAT(*without_directory, HasSubstr("code of x"));
  EXPECT_EQ(nvrtc.compiled, 3U);
}

}  // namespace
}  // namespace sconce::cuda
