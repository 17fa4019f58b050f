// Rows of Fourier transforms and of decompositions of matrices.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddTransforms(std::vector<CompositeRow>& rows) {
  rows.push_back({"Fft", {{{3, 36, 2}}}, [](In x) -> Out { return {x[0].Fft(), x[0].Ifft(0)}; }});
  rows.push_back({"FftOfPrime", {{{2, 131, 2}}}, [](In x) -> Out { return {x[0].Fft()}; }});
  rows.push_back({"RealFft", {{{3, 24}}}, [](In x) -> Out {
                    return {x[0].Rfft(), x[0].Rfft(0, {5}, "forward"), x[0].Rfft({1, 0})};
                  }});
  rows.push_back({"RealFftBack", {{{3, 13, 2}}}, [](In x) -> Out {
                    return {x[0].Irfft(), x[0].Irfft(-1, {21}, "ortho"), x[0].Irfft({1, 0})};
                  }});
  rows.push_back({"Frequencies", {{{4, 7}}}, [](In x) -> Out {
                    return {x[0].FftShift(1), x[0].IfftShift({0, 1}), x[0] * Tensor::FftFreq(7),
                            x[0].Transpose() * Tensor::RfftFreq(6, 0.5)};
                  }});
}

// What does not depend on the signs of vectors.
void AddDecompositions(std::vector<CompositeRow>& rows) {
  rows.push_back({"Qr", {{{2, 4, 3}}, {{2, 4}}}, [](In x) -> Out {
                    const auto [q, r] = x[0].Qr();
                    const auto [wide_q, wide_r] = x[1].Qr();
                    return {q, r, wide_q, wide_r};
                  }});
  rows.push_back({"Eigh", {{{2, 3, 3}}}, [](In x) -> Out {
                    const auto [values, vectors] = x[0].Eigh();
                    return {values, vectors.Square()};
                  }});
  // Of single columns, too: what many rotations give has no bound of its error.
  const auto column = [](const Tensor& t) { return t.SliceAxis(-1, {0, 1}); };
  rows.push_back({"Svd", {{{2, 4, 3}}, {{2, 3}}}, [=](In x) -> Out {
                    const auto [u, s, vt] = x[0].Svd();
                    const auto wide = x[1].Svd(), one = column(x[0]).Svd();
                    return {u.Square(),
                            s,
                            vt.Square(),
                            wide.s,
                            one.s,
                            one.u * one.vt,
                            column(wide.u) * wide.vt.SliceAxis(0, {0, 1})};
                  }});
  rows.push_back({"LeastSquares", {{{2, 4, 2}}, {{2, 4, 3}}, {{2}}}, [=](In x) -> Out {
                    return {x[0].PInverse(), x[0].LstSq(x[1]), column(x[0]).LstSq(x[1]),
                            x[0].Select(0, 1).Transpose().LstSq(x[2])};
                  }});
  rows.push_back({"MatrixRank",
                  {{{2, 4, 2}}},
                  [=](In x) -> Out {
                    return {x[0].MatrixRank(), column(x[0]).MatrixRank()};
                  },
                  false});
}

}  // namespace

void AddMatrixRows(std::vector<CompositeRow>& rows) {
  AddTransforms(rows);
  AddDecompositions(rows);
}

}  // namespace tessera
