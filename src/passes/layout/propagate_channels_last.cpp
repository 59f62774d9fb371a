#include "passes/layout/propagate_channels_last.h"

#include "analysis/affine_ops.h"
#include "analysis/effects.h"
#include "analysis/known_layout.h"
#include "analysis/layout_use.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/invariant_tensors.h"
#include "analysis/memory/memory_writes.h"
#include "base/paged_memory.h"
#include "ir/schema_match.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace sconce {
namespace {

constexpr int64_t kImageRank = 4;

class ChannelsLast {
 public:
  explicit ChannelsLast(Graph& graph) : graph_(graph), aliases_(graph), order_(graph, aliases_), constants_(graph) {
    for_each_node(graph.body(), [&](Node* node) {
      blocked_ = blocked_ || node->op().may_change_sizes;
      nodes_.push_back(node);
    });
  }

  bool run() {
    if (blocked_) {
      return false;
    }
    find_contained();
    bool changed = false;
    // Nodes nested in a node come after it, so operands come first.
    for (Node* node : nodes_) {
      if (const auto weight = convertible_weight(*node); weight && contained_.contains(node->output())) {
        node->set_input(*weight, converted(*node->input(*weight), *node));
        changed = true;
        change_layout(*node->output());
      } else if (takes_known_image(*node) && contained_.contains(node->output())) {
        if (!changed_.contains(node->input(0))) {
          node->set_input(0, converted_image(*node->input(0), *node));
          changed = true;
        }
        change_layout(*node->output());
      } else if (inherits_layout(*node)) {
        change_layout(*node->output());
      }
    }
    return changed;
  }

 private:
  // ---- where the layout goes ----------------------------------------------------------------------------------------

  // Users before operands.
  void find_contained() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      const bool carries = [&] {
        for (size_t i = 0; i < (*node)->inputs().size(); ++i) {
          if (layout_use(**node, i) == LayoutUse::kPreserving) {
            return true;
          }
        }
        return false;
      }();
      if (carries && is_contained(*(*node)->output())) {
        contained_.insert((*node)->output());
      }
    }
  }

  bool is_contained(const Value& value) const {
    return std::ranges::all_of(value.uses(), [&](const Use& use) { return stays_inside(use) || can_be_restored(value); });
  }

  // Returns whether the layout is unobservable after this use, in every run.
  bool stays_inside(const Use& use) const {
    const Node& user = *use.user;
    if (user.kind() == prim::ListConstruct) {
      const auto uses = user.output()->uses();
      return std::ranges::all_of(uses, [&](const Use& of_list) {
        return layout_use(*of_list.user, of_list.index) == LayoutUse::kPreserving &&
               contained_.contains(of_list.user->output());
      });
    }
    switch (layout_use(user, use.index)) {
      case LayoutUse::kPreserving: return contained_.contains(user.output());
      case LayoutUse::kAgnostic: return true;
      case LayoutUse::kFlattens: return flattens_alike(user);
      case LayoutUse::kSensitive: return false;
    }
    return false;
  }

  // Returns whether a view and a copy are equivalent: neither is written later or escapes. For a batch of images in
  // either layout, both have the strides of a new tensor.
  bool flattens_alike(const Node& node) const {
    const Block& body = graph_.body();
    KnownImages known;
    return node.owning_block() == &body && node.input(0)->node()->owning_block() == &body && !may_escape(*node.output()) &&
           !order_.may_be_written_after(*node.output(), node) && is_batch_of_images(*node.input(0), node, known);
  }

  // A copy with the known strides is indistinguishable from the original tensor.
  bool can_be_restored(const Value& value) const { return is_contiguous(value.facts()) && !aliases_.may_be_written(value); }

  // ---- images -------------------------------------------------------------------------------------------------------

  using KnownImages = std::unordered_map<const Value*, bool>;

  // Returns whether the tensor has four dimensions at that node, and its images are one after another in memory:
  // contiguous or channels-last.
  static bool is_batch_of_images(const Value& value, const Node& at, KnownImages& known) {
    const auto [entry, is_new] = known.try_emplace(&value, false);
    if (is_new) {
      const bool is_batch = makes_batch_of_images(*value.node(), at, known);
      known[&value] = is_batch;
      return is_batch;
    }
    return entry->second;
  }

  static bool makes_batch_of_images(const Node& node, const Node& at, KnownImages& known) {
    if (node.inputs().empty() || layout_use(node, 0) != LayoutUse::kPreserving) {
      return false;
    }
    if (is_pointwise(node)) {
      const auto fits = [&](const Value* operand) {
        return operand->type()->kind() != c10::TypeKind::TensorType || is_small_constant(*operand) ||
               is_batch_of_images(*operand, at, known);
      };
      return is_batch_of_images(*node.input(0), at, known) &&
             (node.schema()->is_mutable() || std::ranges::all_of(node.inputs(), fits));
    }
    const auto op = affine_op(node);
    const Value& first = node.input(0)->node()->kind() == prim::ListConstruct && !node.input(0)->node()->inputs().empty()
                             ? *node.input(0)->node()->input(0)
                             : *node.input(0);
    return has_image_rank(*node.output(), at) || has_image_rank(first, at) || is_batch_of_images(first, at, known) ||
           (op && op->accepts_batches_only && constant_rank(*node.input(op->weight)) == kImageRank);
  }

  static bool has_image_rank(const Value& value, const Node& at) {
    return (value.facts() != nullptr && value.facts()->sizes && value.facts()->sizes->size() == kImageRank) ||
           has_checked_rank(value, kImageRank, at);
  }

  static std::optional<int64_t> constant_rank(const Value& value) {
    const auto* constant = value.constant();
    return constant && constant->isTensor() && constant->toTensor().defined() ? std::optional(constant->toTensor().dim())
                                                                              : std::nullopt;
  }

  // Returns whether the value is a constant of too low a rank to affect how images lie in the batch.
  static bool is_small_constant(const Value& value) {
    const auto rank = constant_rank(value);
    return rank && *rank < kImageRank;
  }

  // ---- the change ---------------------------------------------------------------------------------------------------

  // Returns the position of a weight that is not channels-last yet, if the node is a convolution that can run
  // channels-last.
  std::optional<size_t> convertible_weight(const Node& node) const {
    const auto op = affine_op(node);
    const auto weight = op && !op->transposed ? constants_.find(node.input(op->weight)) : std::nullopt;
    const bool is_convertible = weight && weight->defined() && weight->dim() == kImageRank &&
                                weight->scalar_type() == at::kFloat && weight->device().is_cpu() && weight->numel() > 0 &&
                                weight->strides() != channels_last_strides(*weight);
    return is_convertible ? std::optional(op->weight) : std::nullopt;
  }

  // Returns whether facts tell that the node is a convolution of float32 images on the CPU by a weight that is no constant.
  static bool takes_known_image(const Node& node) {
    const auto op = affine_op(node);
    const auto is_known = [](const Value& value) {
      const TensorFacts* facts = value.facts();
      return facts != nullptr && facts->sizes && facts->sizes->size() == kImageRank && facts->dtype == at::kFloat &&
             facts->device == c10::Device(at::kCPU) && facts->layout == c10::kStrided;
    };
    return op && !op->transposed && node.input(op->weight)->constant() == nullptr && is_known(*node.input(0)) &&
           is_known(*node.input(op->weight));
  }

  Value* converted_image(const Value& image, Node& convolution) {
    Value*& made = images_[{&image, convolution.owning_block()}];
    if (made != nullptr && !aliases_.may_be_written(image)) {
      return made;
    }
    Node* copy = graph_.create(aten::contiguous, {const_cast<Value*>(&image)});
    copy->insert_before(&convolution);
    copy->add_input(graph_.insert_constant(static_cast<int64_t>(c10::MemoryFormat::ChannelsLast), copy));
    resolve(*copy);
    copy->set_location(convolution.location());
    made = copy->output();
    if (image.facts() != nullptr) {
      TensorFacts facts = *image.facts();
      facts.forget_strides();
      made->set_facts(std::move(facts));
    }
    return made;
  }

  static std::vector<int64_t> channels_last_strides(const at::Tensor& weight) {
    const int64_t channels = weight.size(1);
    const int64_t row = weight.size(3) * channels;
    return {weight.size(2) * row, 1, row, channels};
  }

  Value* converted(const Value& weight, Node& position) {
    Value*& made = converted_[&weight];
    if (made == nullptr) {
      const c10::InferenceMode normal(false);
      const at::NoGradGuard no_grad;
      const at::Tensor& tensor = weight.constant()->toTensor();
      made = graph_.insert_constant(empty_paged_like(tensor, at::MemoryFormat::ChannelsLast).copy_(tensor), weight.node(),
                                    c10::TensorType::get());
      page_out_later(tensor.storage());  // most often nothing else reads it
      made->set_name(weight.name())->node()->set_location(position.location());
    }
    return made;
  }

  bool inherits_layout(const Node& node) const {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value& input = *node.input(i);
      const auto elements = input.node()->kind() == prim::ListConstruct ? input.node()->inputs() : node.inputs().slice(i, 1);
      if (layout_use(node, i) == LayoutUse::kPreserving &&
          std::ranges::any_of(elements, [&](const Value* value) { return changed_.contains(value); })) {
        return true;
      }
    }
    return false;
  }

  // The facts move to the copy, which the layout-sensitive users get.
  void change_layout(Value& value) {
    changed_.insert(&value);
    if (value.facts() == nullptr) {
      return;
    }
    const TensorFacts before = *value.facts();
    TensorFacts facts = before;
    facts.forget_strides();
    value.set_facts(std::move(facts));
    if (!before.strides) {
      return;
    }
    std::vector<Use> outside;
    std::copy_if(value.uses().begin(), value.uses().end(), std::back_inserter(outside),
                 [&](const Use& use) { return !stays_inside(use); });
    if (outside.empty()) {
      return;
    }
    Node* copy = graph_.create(aten::clone, {&value});
    copy->insert_after(value.node());
    copy->add_input(graph_.insert_constant(static_cast<int64_t>(c10::MemoryFormat::Contiguous), copy));
    resolve(*copy);
    copy->set_location(value.node()->location());
    copy->output()->set_facts(before);
    for (const Use& use : outside) {
      use.user->set_input(use.index, copy->output());
    }
  }

  Graph& graph_;
  AliasSets aliases_;
  MemoryWrites order_;
  InvariantTensors constants_;
  bool blocked_ = false;
  std::vector<Node*> nodes_;                            // in program order
  std::unordered_set<const Value*> contained_;          // values whose layout no user outside can observe
  std::unordered_set<const Value*> changed_;            // values whose layout has changed
  std::unordered_map<const Value*, Value*> converted_;  // weights
  std::map<std::pair<const Value*, const Block*>, Value*> images_;
};

}  // namespace

bool propagate_channels_last(Graph& graph) {
  if (!at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) {
    return false;
  }
  bool has_convolutions = false;
  for_each_node(graph.body(), [&](Node* node) { has_convolutions = has_convolutions || affine_op(*node).has_value(); });
  return has_convolutions && ChannelsLast(graph).run();
}

}  // namespace sconce
