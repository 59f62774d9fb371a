// One step of a recurrent layer as lines of TorchScript, after the products with the weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sconce {

// The variables and expressions of the lines.
struct CellNames {
  std::string of_input;   // the product of the input
  std::string of_hidden;  // the product of the state
  std::string sum;        // of both
  std::string h;          // the state
  std::string c;          // an LSTM's other state
  std::string new_h;
  std::string new_c;
};

// `kind`: lstm, gru, rnn_tanh or rnn_relu.
inline std::vector<std::string> cell_formula(std::string_view kind, const CellNames& names) {
  if (kind == "lstm") {
    return {"i, f, g, o = " + names.sum + ".chunk(4, 1)",
            names.new_c + " = torch.sigmoid(f) * " + names.c + " + torch.sigmoid(i) * torch.tanh(g)",
            names.new_h + " = torch.sigmoid(o) * torch.tanh(" + names.new_c + ")"};
  }
  if (kind == "gru") {
    return {"ir, iz, n = " + names.of_input + ".chunk(3, 1)", "hr, hz, hn = " + names.of_hidden + ".chunk(3, 1)",
            "new = torch.tanh(n + hn * torch.sigmoid(hr + ir))",
            names.new_h + " = (" + names.h + " - new) * torch.sigmoid(hz + iz) + new"};
  }
  return {names.new_h + " = torch." + (kind == "rnn_tanh" ? "tanh" : "relu") + "(" + names.sum + ")"};
}

}  // namespace sconce
