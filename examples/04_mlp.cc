// A small neural network, forward: numbers shipped in this file in, predictions out.
//
// Two layers, 35 -> 16 -> 10, trained to read digits drawn in 5 x 7 dots. tools/demo runs it with
// DEBUG=4, which also prints the generated kernels and what each of them took.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "graph/tensor.h"

using namespace tessera;

namespace {

// The digits 0 to 9 side by side, each with two dots wrong.
const std::vector<std::string> kDrawing = {
    ".###. ..#.. .#### ####. ...#. ##### .###. ##### .###. .###.",
    "#...# .###. #...# #...# ..##. #.... #.... ..... #...# #...#",
    "#..## ..#.. ....# ....# .#.## ##.#. #.... ...#. #.... #...#",
    "..#.# ..#.. ..##. ..##. ##.#. ....# ####. ..#.. .###. .####",
    "##..# ..##. .#... ....# ##### ....# #...# ..#.. #...# .....",
    "#...# ..#.. #.... #...# ...#. #...# #...# #.#.. #...# ....#",
    ".#### .###. .#### ####. ...#. ####. ##### ..#.. ####. .##..",
};

// Weights, a row of the matrix a line: n is 0, and each letter further on is 1/4 more.
const std::vector<std::string> kWeight1 = {
    "nomnmmoopnnokpnokkmmonomonmpopmlmno", "nmlmpmnolnpkmnmonloopponlommllmpkln",
    "olmlnnoqnlgqsoomepolfoomormoooproso", "nommnommnsqqnnrgpnomqkmnppomnrmlkom",
    "nnokmonnmnqnqtnthnguosmpoomnmpnloln", "moppnnmmoqholpoojqpfopmmmtoplnnoqlq",
    "momomonmojnnojjqporqfklmqjmonrlpqol", "oklkplnmnmnqnopnlmpkmoononlkmommmkn",
    "mmlmnlpplktnqnlptonktoomnnnsmmqoopn", "moomnnmmnfmomnevqpplqknnmqolmonmmoo",
    "rnpptolmklnrpplmnlmnmnmnkpnonjqopmq", "lmmnnnmnqpponoqnqopwjsnnifpnpiuonot",
    "pooonnnqrjprppirokolqlppppmmrnpkmmp", "pknpkklmlnoooqplmmlnnoklnnnnmpnnmnj",
    "lnlonlnnoonmnnoomlnmmnnnomrnpnpjmoo", "qoqpqloolrjnpoollonqgkspphnsmpklpnl",
};
const std::vector<std::string> kBias1 = {"nnqlmnonnnoopnnp"};
const std::vector<std::string> kWeight2 = {
    "mpmmwoksnolpjqqk", "kktgmkmlrlmnnmlq", "mqqkksimkoqulnti", "mnrqksppiljllomp",
    "qooklllmmpkqvmon", "qoqopjnqlkulppkm", "pmknlnroqsnlpoli", "onkjmpinmormolnu",
    "qmjtkooopmlmnpmk", "okjslksmnnlrinnp",
};
const std::vector<std::string> kBias2 = {"mnnomlmmqn"};

Tensor Weights(const std::vector<std::string>& rows) {
  std::vector<float> values;
  for (const std::string& row : rows) {
    for (char c : row) values.push_back(static_cast<float>(c - 'n') / 4);
  }
  const int64_t n = static_cast<int64_t>(rows.size());
  return Tensor::From(values, {n, static_cast<int64_t>(rows[0].size())});
}

// The drawings as [10, 35]: rows of dots regrouped by digit.
Tensor Images() {
  std::vector<float> dots;
  for (const std::string& row : kDrawing) {
    for (char c : row) {
      if (c != ' ') dots.push_back(c == '#' ? 1.0f : 0.0f);
    }
  }
  return Tensor::From(dots, {7, 10, 5}).Permute({1, 0, 2}).Reshape({10, 35});
}

}  // namespace

int main() {
  Tensor images = Images();
  Tensor w1 = Weights(kWeight1), b1 = Weights(kBias1);
  Tensor w2 = Weights(kWeight2), b2 = Weights(kBias2);

  // The whole network is one expression; nothing has run when these lines are through.
  Tensor hidden = images.Linear(w1, b1).Relu();
  Tensor probability = hidden.Linear(w2, b2).Softmax();
  Tensor digit = probability.ArgMax(1);

  // Both results at once, so that what they share is computed once.
  Tensor results[] = {probability, digit};
  std::cout << Explain(results) << "\n";
  Tensor::Realize(absl::MakeSpan(results));

  for (const std::string& row : kDrawing) std::cout << row << "\n";
  const std::vector<float> p = probability.ToVector<float>();
  const std::vector<int> read = digit.ToVector<int>();
  int right = 0;
  for (int i = 0; i < 10; ++i) {
    std::printf("drawn %d, read %d with %3.0f %%\n", i, read[i], 100 * p[i * 10 + read[i]]);
    right += read[i] == i;
  }
  std::printf("%d of 10 right\n", right);
  return right == 10 ? 0 : 1;
}
