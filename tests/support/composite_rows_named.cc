// Rows of special functions.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddSpecial(std::vector<CompositeRow>& rows) {
  rows.push_back({"NormalShares", {{{3, 5}, -3, 3}}, [](In x) -> Out {
                    return {x[0].Erfcx(), x[0].Ndtr(), x[0].LogNdtr(), (x[0] / 8 + 0.5).Ndtri()};
                  }});
  rows.push_back(
      {"Bessel", {{{3, 5}, -14, 14}}, [](In x) -> Out {
         return {x[0].BesselI0e(), x[0].BesselI1e(), (x[0] / 4).BesselI0(), (x[0] / 4).BesselI1()};
       }});
  rows.push_back({"GammaFunctions", {{{7}, 0.25, 3}, {{7}, 0.25, 3}}, [](In x) -> Out {
                    return {x[0].BetaLn(x[1]), (x[0] * 20).BetaLn(x[1]), (x[0] + 1.5).Zeta(x[1]),
                            x[0].Polygamma(1), (x[0] + 2).Polygamma(2),  (x[0] + 1).MvLgamma(3),
                            x[0].Entr()};
                  }});
  rows.push_back({"IncompleteGamma", {{{7}, 0.25, 3}, {{7}, 0.25, 5}}, [](In x) -> Out {
                    return {x[0].GammaInc(x[1]), (x[0] * 20).GammaIncC(x[1] * 20)};
                  }});
}

}  // namespace

void AddNamedRows(std::vector<CompositeRow>& rows) {
  AddSpecial(rows);
}

}  // namespace tessera
