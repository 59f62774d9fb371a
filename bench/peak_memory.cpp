// The peak of memory of calls without gradients and of training steps: sconce beside eager LibTorch.
//
//   build/release/bench/peak_memory                          # the models of this file
//   build/release/bench/peak_memory resnet18 my/model.pt     # these, with CASES files beside them; a name: of build/models
//   build/release/bench/peak_memory --json resnet18
//
// activations: the most bytes of tensors and arenas at one time in warm calls, above what eager LibTorch holds between them
// (parameters, arguments, the optimizer's state). Arenas, which sconce's plans keep from call to call, count as activations.
// resident: growth of the process from before the model was loaded to after its calls, with what LibTorch's and LLVM's
// libraries keep. Each measurement has a process of its own. SCONCE_BENCH_SMOKE: few calls of one small model.
#include "bench/child_process.h"
#include "bench/measuring.h"
#include "report/json.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/bench/counted_memory.h"
#include "tools/sconce/bench/resident_memory.h"
#include "tools/sconce/bench/sconce_peer.h"
#include "tools/sconce/bench/training_peer.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include "load/load_module.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/api/module.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>

namespace {

using sconce::bench::is_smoke;
using sconce::bench::measure_in_child;
using sconce::bench::model_file;
using namespace sconce::cli;
using namespace sconce;

constexpr std::array kModels = {"mlp",      "lstm_loop", "transformer_encoder_train", "resnet18",           "resnet18_train",
                                "densenet", "convnext",  "efficientnet_b0",           "mobilenet_v3_large", "swin",
                                "vit_b_16", "deeplabv3"};

constexpr const char* kCall = "call";
constexpr const char* kStep = "step";

// Measures one executor.
Json memory_of(const std::string& model, bool is_sconce, bool trains) {
  const auto cases = std::get<ModelCases>(read_cases(std::filesystem::path(model).replace_extension(".cases.pt").string()));
  at::set_num_threads(1);
  CountedMemory::begin();
  const double resident = resident_bytes();
  const size_t before = CountedMemory::living_bytes();
  const torch::jit::Module module = sconce::load_script_module(model, std::nullopt);
  const std::vector<c10::IValue> arguments = fit_arguments(module, cases.method, cases.inputs.front());
  auto ours = std::make_unique<SconcePeer>(sconce::Options().compile(sconce::CompileMode::kBlocking));
  const SconcePeer* const observed = is_sconce ? ours.get() : nullptr;
  std::unique_ptr<sconce::peers::Peer> peer = is_sconce ? std::move(ours) : sconce::peers::make_peer("eager");
  if (trains) {
    peer = make_training_peer(std::move(peer), Optimizer::kAdam);
  }
  if (const auto reason = peer->prepare(module, cases.method)) {
    throw std::runtime_error(*reason);
  }
  const at::AutoGradMode records(trains);
  const auto session = peer->session();
  const auto call = [&](int times) {
    for (int i = 0; i < times; ++i) {
      at::manual_seed(cases.seed);
      session->run(deep_copy(arguments));
    }
  };
  call(is_smoke() ? 2 : 5);  // makes plans, learns sizes
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.mutable_grad().reset();
  }
  Json memory{{"held", CountedMemory::living_bytes() - before}};  // between calls, without gradients of parameters
  CountedMemory::restart_peak();
  call(is_smoke() ? 1 : 3);
  memory["peak"] = CountedMemory::peak_bytes() - before;
  memory["resident"] = resident_bytes() - resident;
  const Arenas arenas = observed != nullptr ? arenas_of(observed->executor().explain()) : Arenas{};
  memory["arena"] = arenas.bytes;
  memory["lower_bound"] = arenas.lower_bound;
  return memory;
}

double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

// Measures the model, and adds a row to the table and an object to the JSON. Returns false if an executor cannot make the
// calls, or the model has nothing to train; says why.
bool measure(const std::string& name, const char* what, Table& table, Json& json) {
  const std::string model = name.ends_with(".pt") ? name : model_file(name);
  const std::string title = std::filesystem::path(model).stem().string();
  json.push_back(Json{{"model", model}, {"what", what}});
  try {
    const Json eager = measure_in_child({"--measure", model, "eager", what});
    const Json ours = measure_in_child({"--measure", model, "sconce", what});
    const double held = eager["held"];
    const double own = ours["peak"].get<double>() - held;
    const double others = eager["peak"].get<double>() - held;
    const double arena_ratio = ratio(ours["arena"], ours["lower_bound"]);
    table.add_row({title, what, format_ratio(ratio(own, others)), format_bytes(own), format_bytes(others),
                   format_ratio(arena_ratio), format_bytes(ours["arena"]), format_bytes(held),
                   format_bytes(ours["resident"]), format_bytes(eager["resident"])});
    json.back().update(Json{{"activations_ratio", number_or_null(ratio(own, others))},
                            {"activations_bytes", own},
                            {"eager_activations_bytes", others},
                            {"arena_ratio", number_or_null(arena_ratio)},
                            {"arena_bytes", ours["arena"]},
                            {"arena_lower_bound", ours["lower_bound"]},
                            {"held_bytes", ours["held"]},
                            {"eager_held_bytes", eager["held"]},
                            {"resident_bytes", ours["resident"]},
                            {"eager_resident_bytes", eager["resident"]}});
    return true;
  } catch (const std::exception& failure) {
    table.add_row({title, what, "n/a"});
    std::cerr << title << ", " << what << ": n/a: " << failure.what() << "\n";
    json.back()["not_available"] = failure.what();
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--measure") {
    return sconce::bench::answer_parent(
        [&] { return memory_of(argv[2], std::string(argv[3]) == "sconce", std::string(argv[4]) == kStep); });
  }
  benchmark::Initialize(&argc, argv);  // removes the arguments that every benchmark takes
  std::vector<std::string> names(argv + 1, argv + argc);
  const bool as_json = std::erase(names, "--json") > 0;
  if (names.empty()) {
    names.assign(kModels.begin(), is_smoke() ? kModels.begin() + 1 : kModels.end());
  }
  Table table({{"model", Align::kLeft},
               {"", Align::kLeft},
               {"activations"},
               {"sconce"},
               {"eager"},
               {"arena/bound"},
               {"arena"},
               {"held"},
               {"resident"},
               {"eager"}});
  Json json = Json::array();
  bool is_complete = true;
  for (const std::string& name : names) {
    for (const char* what : {kCall, kStep}) {
      is_complete = measure(name, what, table, json) && is_complete;
    }
  }
  std::cout << (as_json ? json_text(json) : table.render()) << std::flush;
  return is_complete ? 0 : 1;
}
