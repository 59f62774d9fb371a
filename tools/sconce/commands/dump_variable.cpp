#include "tools/sconce/commands/dump_variable.h"

#include "base/nearest_name.h"

#include "ir/dump.h"
#include "pipeline/pass_list.h"

#include <algorithm>

namespace sconce::cli {

std::vector<std::string> find_dump_typos(std::string_view value, const PassPipeline& pipeline) {
  std::vector<std::string> choices = {"all"};
  for (const DumpChoice& choice : dump_choices()) {
    choices.emplace_back(choice.name);
  }
  std::vector<std::string> passes(passes_with_arguments().begin(), passes_with_arguments().end());
  for (const PassInfo& pass : all_passes()) {
    passes.emplace_back(pass.name);
  }
  for (const CustomPass& pass : pipeline.custom_passes()) {
    passes.push_back(pass.name);
  }
  std::vector<std::string> typos;
  while (!value.empty()) {
    const std::string_view item = value.substr(0, value.find(','));
    value.remove_prefix(std::min(item.size() + 1, value.size()));
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string name(item.substr(0, colon));
    const std::string pass(item.substr(std::min(colon + 1, item.size())));
    if (std::find(choices.begin(), choices.end(), name) == choices.end()) {
      typos.push_back("SCONCE_DUMP: no choice '" + name + "'" + did_you_mean(name, choices));
    } else if ((name == "before" || name == "after") && !pass.empty() &&
               std::find(passes.begin(), passes.end(), pass) == passes.end()) {
      typos.push_back("SCONCE_DUMP: " + name + ": no pass '" + pass + "'" + did_you_mean(pass, passes));
    }
  }
  return typos;
}

}  // namespace sconce::cli
