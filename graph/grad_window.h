// The adjoint of WINDOW.
//
// In general what lies in the windows is added up where it came from, a term for each element of a
// window (OverlapAdd). But the cotangent of a convolution's windows is a sum of products in which
// one factor varies over the positions and the other over the elements of a window:
//   g[p, k] = sum over c of a[p, c] * b[k, c].
// What comes to x[i] is then a convolution again, of a between zeros by b reversed:
//   sum over k of g[i - k, k] = sum over k and c of a[i - k, c] * b[k, c]
// (of a sum over windows b is one),
// and the windows' cotangent, many times as large as either, is never held. With a stride s the
// elements i = s q + r are taken apart: each r has the window's elements k = s j + r to itself, and
// a product of its own, as these are not equally many. Where x lies between zeros, q and r count
// from a place at which its first element has r = 0.
#pragma once

#include <optional>

#include "graph/tensor.h"

namespace tessera {

// The cotangent of the source of a WINDOW, given the node's; or, where that source is a PAD, of
// what it pads: nothing is computed for borders, which of images of 4 x 4 are more than half.
Tensor WindowCotangent(const UOp& window, const Tensor& g, bool of_padded);

// The same where the cotangent is made, element by element, of the WINDOW itself and of what each
// window has one of, as that of a maximum is: what comes to an element is then made of the element
// and of each window that reaches it, and no more is computed than for the elements of all windows.
// Else nothing.
std::optional<Tensor> CotangentByElements(const UOp& window, const Tensor& g);

}  // namespace tessera
