#include <sconce/pass_pipeline.h>

#include "pipeline/pass_list.h"
#include "pipeline/rewrite_pattern.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace sconce {
namespace {

auto find_custom(const std::vector<CustomPass>& passes, const std::string& name) {
  return std::find_if(passes.begin(), passes.end(), [&](const CustomPass& pass) { return pass.name == name; });
}

}  // namespace

const char* to_string(Stage stage) {
  switch (stage) {
    case Stage::kRequired: return "required";
    case Stage::kOptimize: return "optimize";
    case Stage::kSpecialize: return "specialized plans";
    case Stage::kFuse: return "fuse";
    case Stage::kOnRequest: return "on request";
  }
  return "?";
}

PassPipeline::PassPipeline() {
  std::error_code missing;
  reproducer_folder_ = std::filesystem::temp_directory_path(missing).string();
  if (reproducer_folder_.empty()) {  // the folder may not exist: writing the file reports that
    const char* named = std::getenv("TMPDIR");
    reproducer_folder_ = named != nullptr ? named : P_tmpdir;
  }
}

PassPipeline& PassPipeline::add(CustomPass pass) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  TORCH_CHECK(!pass.name.empty() && std::all_of(pass.name.begin(), pass.name.end(), is_letter),
              "a pass is named with letters, digits and _, not '", pass.name, "'");
  TORCH_CHECK(find_pass(pass.name) == nullptr && find_custom(custom_, pass.name) == custom_.end(), "there is a pass named '",
              pass.name, "' already");
  TORCH_CHECK(pass.run != nullptr, "the pass '", pass.name, "' has no function");
  TORCH_CHECK(pass.stage != Stage::kOnRequest, "the pass '", pass.name,
              "' can run before or after the stages 'required', 'optimize' and 'specialized plans', not '",
              to_string(pass.stage), "'");
  custom_.push_back(std::move(pass));
  return *this;
}

PassPipeline& PassPipeline::before(Stage stage, const std::string& name, PassCallback run, const std::string& help) {
  return add({.name = name, .help = help, .stage = stage, .is_after = false, .run = std::move(run), .library = {}});
}

PassPipeline& PassPipeline::after(Stage stage, const std::string& name, PassCallback run, const std::string& help) {
  return add({.name = name, .help = help, .stage = stage, .is_after = true, .run = std::move(run), .library = {}});
}

PassPipeline& PassPipeline::rewrite(Stage stage, const std::string& name, const std::string& pattern,
                                    const std::string& replacement, const std::string& help) {
  const auto rewriting = std::make_shared<const RewritePattern>(pattern, replacement);
  return after(stage, name, [rewriting](Graph& graph) { return rewriting->apply(graph); }, help);
}

PassPipeline& PassPipeline::remove(const std::string& name) {
  const auto found = find_custom(custom_, name);
  TORCH_CHECK(found != custom_.end(), "there is no pass of your own named '", name, "'",
              find_pass(name) != nullptr ? "; disable() leaves out one of sconce's" : "");
  custom_.erase(found);
  return *this;
}

void PassPipeline::expect_known(const std::string& name) const {
  TORCH_CHECK(find_pass(name) != nullptr || find_custom(custom_, name) != custom_.end(), "there is no pass named '", name,
              "'; the nearest: ", nearest_pass_names(name).front());
}

PassPipeline& PassPipeline::disable(const std::string& name) {
  expect_known(name);
  const PassInfo* pass = find_pass(name);
  TORCH_CHECK(pass == nullptr || pass->stage != Stage::kRequired, "graphs cannot run without the pass '", name, "'");
  disabled_.insert(name);
  return *this;
}

PassPipeline& PassPipeline::enable(const std::string& name) {
  expect_known(name);
  disabled_.erase(name);
  return *this;
}

PassPipeline& PassPipeline::reproducer_folder(const std::string& folder) {
  reproducer_folder_ = folder;
  return *this;
}

}  // namespace sconce
