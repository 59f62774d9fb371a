// The order that passes rely on, with the reasons. executor/stages.cpp runs them; tests/executor/pass_order_test.cpp holds
// it to this table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sconce {

// Holds in every stage that runs both passes.
struct PassOrder {
  enum class When : uint8_t {
    kBefore,  // the first run of `pass` comes before every run of `other`
    kAfter,   // the last run of `pass` comes after every run of `other`
  };
  std::string_view pass;
  When when;
  std::string_view other;
  std::string_view reason;
};

inline constexpr auto kBefore = PassOrder::When::kBefore;
inline constexpr auto kAfter = PassOrder::When::kAfter;

inline constexpr std::array kPassOrder = {
    // Required passes
    PassOrder{"specialize_autograd_zero", kBefore, "lower_grad_of",
              "facts about definedness decide which prim::GradOf blocks are worth lowering"},
    PassOrder{"canonicalize_ops", kBefore, "lower_autocast", "autocast's lists have one name per operator"},
    PassOrder{"eliminate_dead_nodes", kAfter, "lower_grad_of", "it leaves branches and constants without users"},
    PassOrder{"eliminate_dead_nodes", kAfter, "lower_autocast", "it leaves the objects of `with` blocks without users"},
    // Freezing, and passes that constants of a module enable
    PassOrder{"freeze", kBefore, "fold_constant_branches", "branches on `training` decide whether a norm trains"},
    PassOrder{"fold_constant_branches", kBefore, "fold_batch_norm", "only a norm that does not train is folded"},
    PassOrder{"fold_batch_norm", kBefore, "eliminate_common_nodes", "a merged convolution has users besides the norm"},
    PassOrder{"fold_batch_norm", kBefore, "pool_constants", "it makes new weights, of which equal ones are merged"},
    PassOrder{"fold_batch_norm", kBefore, "propagate_channels_last", "it makes new weights, which are converted"},
    PassOrder{"pool_constants", kBefore, "propagate_channels_last", "of two equal weights, only one might be converted"},
    PassOrder{"remove_list_mutation", kBefore, "propagate_channels_last",
              "elements of lists that are built step by step are not known"},
    // Optimizing passes
    PassOrder{"unroll_loops", kBefore, "remove_list_mutation", "it brings the appends of all iterations into one block"},
    PassOrder{"remove_dead_copies", kBefore, "eliminate_common_nodes",
              "readers of a copy and readers of its source become equal"},
    PassOrder{"remove_dead_copies", kBefore, "remove_layout_changes",
              "a copy between two inverse views hides that they cancel"},
    PassOrder{"eliminate_common_nodes", kBefore, "hoist_loop_invariants",
              "nodes that a loop has in common with the code around it need not be hoisted"},
    PassOrder{"eliminate_dead_nodes", kAfter, "eliminate_common_nodes", "it leaves the operands of merged nodes unused"},
    PassOrder{"pool_constants", kAfter, "remove_layout_changes", "it makes constants where it needs them"},
    PassOrder{"check_inplace", kAfter, "propagate_constants", "it checks that no folded constant is written"},
    PassOrder{"check_inplace", kAfter, "eliminate_common_nodes", "it checks that no merged value is written"},
    PassOrder{"check_inplace", kAfter, "hoist_loop_invariants", "it checks that no moved value is written"},
    PassOrder{"check_inplace", kAfter, "pool_constants", "it checks that no merged constant is written"},
    // Passes of specialized plans
    PassOrder{"refine_optional_tensors", kBefore, "propagate_facts", "facts are facts of tensors"},
    PassOrder{"fold_constant_branches", kBefore, "remove_tensor_mutation",
              "a branch that is never taken may seem to return the tensor that is written"},
    PassOrder{"remove_tensor_mutation", kBefore, "differentiate", "gradients flow through functional operators"},
    PassOrder{"decompose_attention", kBefore, "eliminate_common_nodes", "layers ask again for sizes that others asked for"},
    PassOrder{"decompose_convolution_gradients", kBefore, "propagate_channels_last",
              "gradients of images in another layout are left to LibTorch"},
    PassOrder{"decompose_pointwise_gradients", kBefore, "decompose_convolution_gradients",
              "which would leave a choice between the operator and products"},
    PassOrder{"decompose_rnn", kBefore, "hoist_loop_invariants", "it makes loops, which are optimized as all others"},
    PassOrder{"eliminate_common_nodes", kBefore, "differentiate",
              "merged nodes decide branches, each of which would end a subgraph"},
    // Kernels
    PassOrder{"hoist_attribute_reads", kBefore, "form_groups",
              "a read between two nodes would stand between a product and a group"},
    PassOrder{"form_groups", kBefore, "join_clamps", "it makes the kernel nodes that take convolutions"},
};

}  // namespace sconce
