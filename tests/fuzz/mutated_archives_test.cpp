// Model files with mistakes in one part of the format after the other: loading gives a module or one clear error, and never
// crashes or hangs. SCONCE_MUTATIONS: how many per part and model (200).
#include "tests/support/damage.h"
#include "tests/support/environment_number.h"
#include "tests/support/zip_writer.h"

#include <sconce/sconce.h>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

namespace sconce::testing {
namespace {

struct Part {
  const char* name;
  // Gives a damaged file from the good one's bytes and entries.
  std::function<std::string(const std::string& file, ZipContents contents, Random& random)> mutate;
};

// The content of one of the entries whose names end so, its checksum made right.
std::string damage_entry(ZipContents contents, const std::vector<std::string>& endings, Random& random) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < contents.size(); ++i) {
    for (const std::string& ending : endings) {
      if (contents[i].first.ends_with(ending)) {
        chosen.push_back(i);
      }
    }
  }
  std::string& content = contents.at(chosen.at(below(random, chosen.size()))).second;
  damage(content, 0, content.size(), random);
  return write_zip(contents);
}

size_t directory_begin(const std::string& file) { return std::min(file.find("PK\x01\x02"), file.size()); }

std::vector<Part> parts() {
  return {
      {"any_byte",
       [](std::string file, const ZipContents&, Random& random) {
         damage(file, 0, file.size(), random);
         return file;
       }},
      {"zip_directory",
       [](std::string file, const ZipContents&, Random& random) {
         damage(file, directory_begin(file), file.size(), random);
         return file;
       }},
      {"zip_headers",
       [](std::string file, const ZipContents&, Random& random) {
         const size_t header = file.find("PK\x03\x04", below(random, directory_begin(file)));
         damage(file, header == std::string::npos ? 0 : header,
                std::min(file.size(), header == std::string::npos ? 64 : header + 64), random);
         return file;
       }},
      {"length",
       [](std::string file, const ZipContents&, Random& random) { return file.substr(0, below(random, file.size())); }},
      {"pickles", [](const std::string&, ZipContents contents,
                     Random& random) { return damage_entry(std::move(contents), {"/data.pkl", "/constants.pkl"}, random); }},
      {"source_ranges", [](const std::string&, ZipContents contents,
                           Random& random) { return damage_entry(std::move(contents), {".debug_pkl"}, random); }},
      {"code", [](const std::string&, ZipContents contents,
                  Random& random) { return damage_entry(std::move(contents), {".py"}, random); }},
      {"versions",
       [](const std::string&, ZipContents contents, Random& random) {
         return damage_entry(std::move(contents), {"/version", "/byteorder", "/serialization_id"}, random);
       }},
      {"tensors", [](const std::string&, ZipContents contents,
                     Random& random) { return damage_entry(std::move(contents), {"/data/0", "/data/1"}, random); }},
      {"entries",
       [](const std::string&, ZipContents contents, Random& random) {
         std::string& name = contents[below(random, contents.size())].first;
         damage(name, 0, name.size(), random);
         if (below(random, 4) == 0) {
           contents.erase(contents.begin() + static_cast<std::ptrdiff_t>(below(random, contents.size())));
         }
         return write_zip(contents);
       }},
  };
}

std::string models_path(const std::string& name) {
  const char* directory = std::getenv("SCONCE_MODELS_DIR");
  return std::string(directory == nullptr ? "build/models" : directory) + "/" + name + ".pt";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The file that is being loaded; left behind by a crash.
class MutatedFile {
 public:
  MutatedFile() : path_(std::filesystem::temp_directory_path() / ("sconce-mutated-" + std::to_string(getpid()) + ".pt")) {}
  ~MutatedFile() { std::filesystem::remove(path_); }
  const std::string& write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

 private:
  std::string path_;
};

// Whether it loads; an error must be one line that begins with the path.
bool loads(const std::string& path) {
  try {
    const Module module = load(path);
    for (const std::string& method : module.method_names()) {
      try {
        module.method(method);
      } catch (const c10::Error& refused) {
        EXPECT_STRNE(refused.what_without_backtrace(), "");
      }
    }
    return true;
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_TRUE(message.starts_with(path)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return false;
  }
}

class MutatedArchives : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, MutatedArchives, ::testing::Range<size_t>(0, parts().size()),
                         [](const auto& part) { return parts()[part.param].name; });

TEST_P(MutatedArchives, GiveAModuleOrAClearError) {
  const Part part = parts()[GetParam()];
  const uint64_t count = environment_number("SCONCE_MUTATIONS", 200);
  MutatedFile mutated;
  size_t loaded = 0;
  size_t tried = 0;
  for (const std::string model : {"attributes_state", "mlp", "script_class"}) {
    const std::string file = read_file(models_path(model));
    const ZipContents contents = read_zip(models_path(model));
    for (uint64_t seed = 0; seed < count; ++seed) {
      SCOPED_TRACE(model + ", " + part.name + ", seed " + std::to_string(seed));
      Random random(seed);
      loaded += loads(mutated.write(part.mutate(file, contents, random))) ? 1 : 0;
      ++tried;
    }
  }
  std::cout << part.name << ": " << tried << " files, " << loaded << " of them load\n";
  EXPECT_LT(loaded, tried);
}

TEST(MutatedArchives, AnArchiveWrittenAnewLoads) {
  MutatedFile file;
  EXPECT_TRUE(loads(file.write(write_zip(read_zip(models_path("mlp"))))));
}

}  // namespace
}  // namespace sconce::testing
