// Passes of your own among sconce's, per module.
//
//   sconce::Options options;
//   options.passes().after(sconce::Stage::kOptimize, "my_pass", [](sconce::Graph& graph) { … return changed; });
//   options.passes().disable("unroll_loops");
//   sconce::Module module = sconce::load("model.pt", options);
//
// <sconce/pass.h> has what a pass is written with.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace sconce {

class Graph;

// The named points of a compile. Passes of your own run before or after the first two.
//   kRequired    what must happen before a graph can run
//   kOptimize    what makes it better and leaves it differentiable
//   kSpecialize  what needs to know the arguments; no compile runs it yet
//   kOnRequest   what runs only where it is asked for by name
enum class Stage { kRequired, kOptimize, kSpecialize, kOnRequest };

// Returns whether it changed the graph. May throw, which counts as having failed.
using PassCallback = std::function<bool(Graph&)>;

struct CustomPass {
  std::string name;
  std::string help;  // one line
  Stage stage = Stage::kOptimize;
  bool is_after = true;  // the stage's passes; else before them
  PassCallback run;
  std::string library;  // the plug-in it came from, if one
};

// A pass works on a copy of the graph, which is verified when it returns. If it throws, breaks the graph or is wrong about
// whether it changed it, the copy is dropped and the model runs without the pass; `explain` tells why and names a
// reproducer.
class PassPipeline {
 public:
  PassPipeline();
  // Runs the pass at that point, behind those added there before it. Throws c10::Error when the name is taken.
  PassPipeline& before(Stage stage, const std::string& name, PassCallback run, const std::string& help = "");
  PassPipeline& after(Stage stage, const std::string& name, PassCallback run, const std::string& help = "");
  // Behind the stage, rewrites what matches `pattern` to `replacement`, both IR text (<sconce/pass.h>, rewrite_pattern,
  // which `before` takes in a function). Throws c10::Error when they are no pattern.
  PassPipeline& rewrite(Stage stage, const std::string& name, const std::string& pattern, const std::string& replacement,
                        const std::string& help = "");
  // The passes of a library that was built for this sconce. Throws c10::Error, with both versions, for any other.
  PassPipeline& load_plugin(const std::string& path);

  // Takes a pass of your own out again. Throws c10::Error when there is none of the name.
  PassPipeline& remove(const std::string& name);
  // Leaves out a pass, sconce's or your own. Throws c10::Error for an unknown name, and for one without which graphs cannot
  // run.
  PassPipeline& disable(const std::string& name);
  PassPipeline& enable(const std::string& name);

  const std::vector<CustomPass>& custom_passes() const { return custom_; }
  bool is_disabled(const std::string& name) const { return disabled_.count(name) != 0; }

  // Where a reproducer is written for a pass that failed (`sconce replay` runs it). Empty: nowhere. By default the
  // system's folder for temporary files.
  PassPipeline& reproducer_folder(const std::string& folder);
  const std::string& reproducer_folder() const { return reproducer_folder_; }

 private:
  PassPipeline& add(CustomPass pass);
  void expect_known(const std::string& name) const;
  std::vector<CustomPass> custom_;
  std::set<std::string> disabled_;
  std::string reproducer_folder_;
};

const char* to_string(Stage stage);

}  // namespace sconce
