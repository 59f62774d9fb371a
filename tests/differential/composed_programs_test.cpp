// Programs of composed operators on sconce and on LibTorch's interpreter: everything about their calls must agree.
//
//   SCONCE_PROGRAMS=20000 build/release/tests/differential_test --gtest_filter='ComposedPrograms.*'    more of them
//   SCONCE_SEED=17 …                                                                                   this one alone
//   SCONCE_SEED=17 SCONCE_PROGRAMS=100 …                                                               a hundred from it on
//
// A difference is shrunk and printed as a standalone Python file, unless SCONCE_SHRINK=0. SCONCE_PRINT=1 prints the first
// program.
#include "tests/differential/composed/program_check.h"
#include "tests/differential/composed/program_generator.h"
#include "tests/differential/composed/program_shrinker.h"
#include "tests/differential/composed/templates.h"
#include "tests/support/children.h"
#include "tests/support/environment_number.h"
#include "tests/support/part.h"

#include "ops/op.h"
#include "ops/rows.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

namespace sconce::testing::composed {
namespace {

constexpr uint64_t kPrograms = 344;
constexpr uint64_t kBatch = 25;  // programs in one process
constexpr unsigned kSeconds = 600;

struct Tally {
  uint64_t programs = 0;
  uint64_t rejected = 0;
  uint64_t calls = 0;
  uint64_t raised = 0;
  uint64_t gradients = 0;
  uint64_t second_gradients = 0;
  std::map<std::string, uint64_t> excuses;
  std::vector<uint64_t> crashes_of_libtorch;
  std::map<uint64_t, Finding> findings;  // by seed
};

// The words of the lines that a child reports: the seed, what follows, the rest of the line.
struct Line3 {
  uint64_t seed = 0;
  std::string what;
  std::string rest;
};

Line3 parse_line(const std::string& line) {
  Line3 parsed;
  std::istringstream words(line);
  words >> parsed.seed >> parsed.what;
  std::getline(words >> std::ws, parsed.rest);
  return parsed;
}

// In a child: checks the program and reports what it found.
void check_in_child(uint64_t seed, size_t position, const std::function<Program()>& make, const ReportLine& report) {
  const std::string name = std::to_string(seed);
  const auto phase = [&](const std::string& now) { report("@ " + std::to_string(position) + " " + name + " " + now); };
  try {
    phase("generator");
    const Program program = make();
    const Verdict verdict = check_program(program, phase);
    if (verdict.finding) {
      report(name + " finding " + verdict.finding->kind);
      report(name + " text " + verdict.finding->text);
    }
    if (!verdict.excuse.empty()) {
      report(name + " excuse " + verdict.excuse);
    }
    std::ostringstream numbers;
    numbers << name << " done " << verdict.is_rejected << " " << verdict.calls << " " << verdict.calls_that_raise << " "
            << verdict.gradients << " " << verdict.second_gradients;
    report(numbers.str());
  } catch (const std::exception& failure) {
    report(name + " finding exception");
    report(name + " text " + failure.what());
  }
}

void add_report(const PieceReport& report, Tally& tally) {
  for (const std::string& line : report.lines) {
    const Line3 parsed = parse_line(line);
    if (parsed.what == "finding") {
      tally.findings[parsed.seed].kind = parsed.rest;
    } else if (parsed.what == "text") {
      tally.findings[parsed.seed].text = parsed.rest;
    } else if (parsed.what == "excuse") {
      tally.excuses[parsed.rest] += 1;
    } else if (parsed.what == "done") {
      uint64_t rejected = 0;
      uint64_t calls = 0;
      uint64_t raised = 0;
      uint64_t gradients = 0;
      uint64_t second = 0;
      std::istringstream(parsed.rest) >> rejected >> calls >> raised >> gradients >> second;
      tally.programs += 1;
      tally.rejected += rejected;
      tally.calls += calls;
      tally.raised += raised;
      tally.gradients += gradients;
      tally.second_gradients += second;
    }
  }
  for (const std::string& crash : report.crashes) {
    const Line3 parsed = parse_line(crash);
    if (parsed.what == "sconce") {
      tally.findings[parsed.seed] = {"crash", "the process ends"};
    } else {
      tally.crashes_of_libtorch.push_back(parsed.seed);
    }
  }
}

void run_batch(uint64_t first, uint64_t count, Tally& tally) {
  const auto reports = run_in_children(1, kSeconds, [&](size_t /*piece*/, size_t begin, const ReportLine& report) {
    for (uint64_t i = begin; i < count; ++i) {
      check_in_child(first + i, i, [&] { return generate_program(first + i); }, report);
    }
  });
  add_report(reports[0], tally);
}

// Returns what differs in the program, or nothing.
std::optional<Finding> finding_of(const Program& program) {
  const auto reports = run_in_children(1, kSeconds, [&](size_t /*piece*/, size_t begin, const ReportLine& report) {
    if (begin == 0) {
      check_in_child(program.seed, 0, [&] { return program; }, report);
    }
  });
  Tally tally;
  add_report(reports[0], tally);
  return tally.findings.empty() ? std::nullopt : std::optional(tally.findings.begin()->second);
}

void report_finding(uint64_t seed, const Finding& finding) {
  const Program small = shrink(generate_program(seed), [&](const Program& candidate) {
    const auto found = finding_of(candidate);
    return found && found->kind == finding.kind;
  });
  ADD_FAILURE() << "program " << seed << ": " << finding.kind << "\n  " << finding.text
                << "\nshrunk: " << finding_of(small).value_or(finding).text << "\n"
                << source_of(small) << "\n----- Python\n"
                << python_of(small) << "-----\n";
}

TEST(ComposedPrograms, DoAsInLibTorch) {
  const uint64_t alone = environment_number("SCONCE_SEED", 0);
  const Seeds seeds = alone == 0 ? seeds_in_part({1, environment_number("SCONCE_PROGRAMS", kPrograms)})
                                 : Seeds{alone, environment_number("SCONCE_PROGRAMS", 1)};
  if (environment_number("SCONCE_PRINT", 0) != 0) {
    std::cout << python_of(generate_program(seeds.first));
  }
  Tally tally;
  for (uint64_t next = seeds.first; next < seeds.end(); next += kBatch) {
    run_batch(next, std::min(kBatch, seeds.end() - next), tally);
  }
  for (const auto& [seed, finding] : tally.findings) {
    if (environment_number("SCONCE_SHRINK", 1) != 0) {
      report_finding(seed, finding);
    } else {
      ADD_FAILURE() << "program " << seed << ": " << finding.kind << "\n  " << finding.text;
    }
  }
  std::cout << tally.programs << " programs, " << tally.calls << " calls, " << tally.raised << " of them raise; "
            << tally.gradients << " gradients, " << tally.second_gradients << " of second order; " << tally.findings.size()
            << " programs differ\n";
  for (const auto& [excuse, times] : tally.excuses) {
    std::cout << "  " << times << " differ for a reason: " << excuse << "\n";
  }
  for (const uint64_t seed : tally.crashes_of_libtorch) {
    std::cout << "  LibTorch crashes in program " << seed << "\n";
  }
  EXPECT_EQ(tally.rejected, 0U) << "LibTorch's compiler rejects programs";
}

// ---- what occurs ------------------------------------------------------------------------------------------------------

void add_rows(torch::jit::Block* block, std::set<const OpRow*>& rows) {
  for (torch::jit::Node* node : block->nodes()) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    rows.insert(find_op_row(node->kind().toQualString(), schema == nullptr ? "" : schema->overload_name()));
    for (torch::jit::Block* inner : node->blocks()) {
      add_rows(inner, rows);
    }
  }
}

void add_rows(const Program& program, std::set<const OpRow*>& rows) {
  const torch::jit::Module module = module_of(program);
  add_rows(torch::jit::toGraphFunction(module.get_method("forward").function()).graph()->block(), rows);
}

// Rows that no program has, with the reason. Rows of synonyms are left out: the frontend writes the operator itself.
const std::map<std::string, std::vector<std::string>>& rows_without_calls() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"made by a pass",
       {"sconce::kernel", "sconce::lstm_layer", "sconce::lstm_layer_backward", "sconce::lstm_layer_for_gradients",
        "sconce::recurrent_layer"}},
      {"called by C++ functions, whose traces tests/training has",
       {"aten::_has_compatible_shallow_copy_type", "aten::empty_permuted", "aten::is_same_size", "aten::sym_numel",
        "aten::sym_size", "aten::sym_stride"}},
      {"of several ranks, which tests/parallel has", {"_c10d_functional::wait_tensor"}},
      {"they are about GPUs, on which tests/cuda_graphs runs programs", {"aten::cpu", "aten::cuda"}},
      {"LibTorch's own: without checks, or over memory that is copied when it is written",
       {"aten::_lazy_clone", "aten::_reshape_alias", "aten::lift"}},
      {"of objects, tasks, printing, files and autograd's graph, which tests/differential/language_test.cpp has",
       {"aten::_get_tracing_state",
        "aten::backward",
        "aten::get_autocast_dtype",
        "aten::grad",
        "aten::has_torch_function",
        "aten::is_leaf",
        "aten::is_scripting",
        "aten::output_nr",
        "aten::retain_grad",
        "aten::retains_grad",
        "aten::save",
        "aten::wait",
        "aten::warn",
        "prim::CallFunction",
        "prim::CallMethod",
        "prim::CreateObject",
        "prim::Enter",
        "prim::Exit",
        "prim::Print",
        "prim::SetAttr",
        "prim::TimePoint",
        "prim::awaitable",
        "prim::awaitable_wait",
        "prim::fork",
        "prim::isinstance"}},
      {"the frontend folds them, or writes them only where a type is refined or unpacked",
       {"aten::__is__", "aten::_unwrap_optional", "aten::is_floating_point", "prim::ListUnpack", "prim::TupleIndex",
        "prim::TupleSlice", "prim::TupleUnpack", "prim::Uninitialized", "prim::is_cuda", "prim::layout",
        "prim::unchecked_unwrap_optional"}},
      {"made by passes, and no frontend writes them",
       {"aten::__round_to_zero_floordiv", "prim::AddStatValue", "prim::ConstantChunk", "prim::GradOf", "prim::Param",
        "prim::ReductionSizes", "prim::Return"}},
      {"results or operands that are not numbers, tensors or lists of these",
       {"aten::Delete", "aten::_set_item", "aten::add_.t", "aten::clear", "aten::dict", "aten::extend", "aten::insert",
        "aten::reverse", "prim::tolist", "prim::RaiseException", "aten::manual_seed"}},
      {"of gradients, which differentiation calls, and operators inside",
       {"aten::_adaptive_avg_pool3d_backward",
        "aten::_prelu_kernel_backward",
        "aten::_cdist_backward",
        "aten::_cdist_forward",
        "aten::_upsample_bicubic2d_aa_backward",
        "aten::_upsample_bilinear2d_aa_backward",
        "aten::_upsample_nearest_exact1d_backward",
        "aten::_upsample_nearest_exact2d_backward",
        "aten::_upsample_nearest_exact3d_backward",
        "aten::adaptive_max_pool2d_backward",
        "aten::adaptive_max_pool3d_backward",
        "aten::mse_loss_backward",
        "aten::multi_margin_loss_backward",
        "aten::multilabel_margin_loss_backward",
        "aten::reflection_pad1d_backward",
        "aten::replication_pad1d_backward",
        "aten::upsample_bicubic2d_backward",
        "aten::upsample_bilinear2d_backward",
        "aten::upsample_linear1d_backward",
        "aten::upsample_nearest1d_backward",
        "aten::upsample_nearest2d_backward",
        "aten::upsample_nearest3d_backward",
        "aten::upsample_trilinear3d_backward",
        "aten::_to_copy",
        "aten::glu_backward",
        "aten::huber_loss_backward",
        "aten::masked_scatter_backward",
        "aten::max_pool3d_with_indices_backward",
        "aten::reflection_pad2d_backward",
        "aten::replication_pad2d_backward",
        "aten::replication_pad3d_backward",
        "aten::smooth_l1_loss_backward",
        "aten::soft_margin_loss_backward",
        "aten::unfold_backward",
        "aten::_safe_softmax",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::nll_loss2d_forward",
        "aten::_adaptive_avg_pool2d_backward",
        "aten::_embedding_bag",
        "aten::_embedding_bag_backward",
        "aten::_embedding_bag_forward_only",
        "aten::_log_softmax_backward_data",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::_softmax_backward_data",
        "aten::avg_pool2d_backward",
        "aten::binary_cross_entropy_backward",
        "aten::convolution_backward",
        "aten::diagonal_backward",
        "aten::embedding_dense_backward",
        "aten::log_sigmoid_backward",
        "aten::max_pool2d_with_indices_backward",
        "aten::native_batch_norm_backward",
        "aten::native_layer_norm_backward",
        "aten::nll_loss2d_backward",
        "aten::nll_loss_backward",
        "aten::mkldnn_rnn_layer",
        "aten::mkldnn_rnn_layer_backward",
        "aten::select_backward",
        "aten::slice_backward",
        "aten::squeeze_copy",
        "aten::sum_to_size",
        "aten::value_selecting_reduction_backward"}},
      {"of other devices",
       {"aten::_thnn_fused_gru_cell", "aten::_thnn_fused_lstm_cell", "aten::batch_norm_gather_stats",
        "aten::batch_norm_gather_stats_with_counts", "aten::cudnn_batch_norm", "aten::cudnn_convolution",
        "aten::cudnn_convolution_transpose", "aten::miopen_batch_norm", "aten::to.prim_Device"}},
      {"overloads for names of dimensions, out arguments or dtypes, which the frontend does not choose",
       {"aten::_version", "aten::index_copy", "aten::set", "aten::set_data", "aten::std", "aten::var", "aten::view"}},
      {"packed weights or batches, and sparse or other tensors that only their own operators read",
       {"aten::_pack_padded_sequence", "aten::_pack_sequence", "aten::quantize_per_tensor_dynamic",
        "aten::quantized_lstm.input", "aten::resize_as_sparse_", "quantized::linear", "quantized::linear_dynamic",
        "quantized::linear_dynamic_fp16", "quantized::linear_relu", "quantized::linear_relu_dynamic",
        "quantized::linear_relu_dynamic_fp16", "aten::to_mkldnn", "torchvision::nms"}},
      {"LibTorch's own tests",
       {"aten::_foobar", "aten::_test_optional_filled_intlist", "aten::_test_optional_floatlist",
        "aten::_test_optional_intlist", "aten::_test_parallel_materialize"}}};
  return all;
}

TEST(ComposedPrograms, HaveACallOfEveryRow) {
  constexpr uint64_t kAttempts = 8;
  constexpr uint64_t kSeeds = 40;
  std::set<const OpRow*> rows;
  for (size_t i = 0; i < templates().size(); ++i) {
    std::optional<Program> program;
    for (uint64_t seed = 1; seed <= kAttempts && !program; ++seed) {
      program = program_of_template(i, seed);
    }
    EXPECT_TRUE(program) << "LibTorch rejects " << templates()[i].text;
    if (program) {
      add_rows(*program, rows);
    }
  }
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    add_rows(generate_program(seed), rows);
  }
  std::set<std::string> without;
  for (const auto& [reason, names] : rows_without_calls()) {
    without.insert(names.begin(), names.end());
  }
  for_each_row([&](const OpRow& row) {
    const std::string name = std::string(row.name) + (row.overloads.empty() ? "" : "." + std::string(row.overloads[0]));
    EXPECT_TRUE(rows.contains(&row) || !row.synonym_of.empty() || without.contains(name))
        << "no program has a call of " << name;
  });
  EXPECT_GT(rows.size(), 400U);
  EXPECT_GE(kPrograms * kTemplatesInOrder, templates().size()) << "some calls occur by chance alone";
}

}  // namespace
}  // namespace sconce::testing::composed
