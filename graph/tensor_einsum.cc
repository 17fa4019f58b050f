// Sums of products by an equation of letters.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// An axis is named by a letter, or by 256 + its place from the right in an ellipsis.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;

struct Term {
  Tensor value;
  Labels labels;
};

bool Has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// The labels of one operand; "..." stands for what the letters leave of its rank.
Labels ParseTerm(absl::string_view text, int rank, absl::string_view equation) {
  Labels labels;
  int ellipsis = -1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "..." && ellipsis < 0) {
      ellipsis = static_cast<int>(labels.size());
      i += 2;
    } else if (absl::ascii_isalpha(static_cast<unsigned char>(text[i]))) {
      labels.push_back(text[i]);
    } else {
      Fail("cannot read '", text, "' in '", equation, "': letters and one ... name the axes");
    }
  }
  const int rest = rank - static_cast<int>(labels.size());
  if (rest < 0 || (ellipsis < 0 && rest > 0)) {
    Fail("'", text, "' in '", equation, "' does not name the ", rank, " axes of its operand");
  }
  for (int i = 0; i < rest; ++i)
    labels.insert(labels.begin() + ellipsis + i, kEllipsis + rest - 1 - i);
  return labels;
}

// The term with each label once: repeated ones become diagonals.
Term Distinct(Term t) {
  for (size_t i = 0; i < t.labels.size(); ++i) {
    for (size_t j = t.labels.size() - 1; j > i; --j) {
      if (t.labels[i] != t.labels[j]) continue;
      const int a = static_cast<int>(i), b = static_cast<int>(j);
      if (!(t.value.shape()[a] == t.value.shape()[b])) {
        Fail("axes ", a, " and ", b, " of ", Show(t.value), " have one letter and differ");
      }
      t.value = t.value.Diagonal(0, a, b).MoveAxis(-1, a);
      t.labels.erase(t.labels.begin() + b);
    }
  }
  return t;
}

// Without the labels that neither `others` nor the output need.
Term Summed(Term t, const Labels& needed) {
  Ints axes;
  Labels kept;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (Has(needed, t.labels[i])) {
      kept.push_back(t.labels[i]);
    } else {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  if (!axes.empty()) t.value = t.value.Sum(axes);
  t.labels = kept;
  return t;
}

// The value with the labels' axes in the given order, extents of 1 where it has none.
Tensor Arranged(const Term& t, const Labels& order) {
  Ints axes;
  Extents dims;
  for (int label : order) {
    const auto at = std::find(t.labels.begin(), t.labels.end(), label);
    if (at == t.labels.end()) {
      dims.push_back(1);
      continue;
    }
    axes.push_back(at - t.labels.begin());
    dims.push_back(t.value.shape()[static_cast<int>(axes.back())]);
  }
  return t.value.Permute(axes).Reshape(dims);
}

// The product of two terms, summed over what is not needed any more.
Term Product(const Term& a, const Term& b, const Labels& needed) {
  Labels all = a.labels;
  for (int label : b.labels) {
    if (!Has(all, label)) all.push_back(label);
  }
  for (size_t i = 0; i < a.labels.size(); ++i) {
    for (size_t j = 0; j < b.labels.size(); ++j) {
      if (a.labels[i] != b.labels[j]) continue;
      const Extent &m = a.value.shape()[static_cast<int>(i)],
                   &n = b.value.shape()[static_cast<int>(j)];
      if (!(m == n) && !m.is_int(1) && !n.is_int(1)) {
        Fail("one letter names axis ", i, " of ", Show(a.value), " and axis ", j, " of ",
             Show(b.value));
      }
    }
  }
  return Summed({Arranged(a, all) * Arranged(b, all), all}, needed);
}

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};

// Without an output: the ellipsis, then the letters that occur once, in their order.
Labels ImplicitOutput(const std::vector<Labels>& inputs) {
  Labels all;
  for (const Labels& labels : inputs) all.insert(all.end(), labels.begin(), labels.end());
  std::sort(all.begin(), all.end());
  Labels broadcast, once;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto n = std::count(all.begin(), all.end(), all[i]);
    if (i > 0 && all[i] == all[i - 1]) continue;
    if (all[i] >= kEllipsis) broadcast.insert(broadcast.begin(), all[i]);
    if (all[i] < kEllipsis && n == 1) once.push_back(all[i]);
  }
  broadcast.insert(broadcast.end(), once.begin(), once.end());
  return broadcast;
}

Equation Parse(absl::string_view text, absl::Span<const Tensor> tensors) {
  Equation e;
  const size_t arrow = text.find("->");
  const std::vector<absl::string_view> inputs = absl::StrSplit(text.substr(0, arrow), ',');
  if (inputs.size() != tensors.size()) {
    Fail("'", text, "' names ", inputs.size(), " operands, and there are ", tensors.size());
  }
  int widest = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    e.inputs.push_back(ParseTerm(inputs[i], tensors[i].rank(), text));
    for (int label : e.inputs.back()) widest = std::max(widest, label - kEllipsis + 1);
  }
  if (arrow == absl::string_view::npos) {
    e.output = ImplicitOutput(e.inputs);
    return e;
  }
  const absl::string_view output = text.substr(arrow + 2);
  const auto letters = static_cast<int>(
      std::count_if(output.begin(), output.end(), [](char c) { return absl::ascii_isalpha(c); }));
  const bool dots = absl::StrContains(output, "...");
  e.output = ParseTerm(output, letters + (dots ? widest : 0), text);
  for (size_t i = 0; i < e.output.size(); ++i) {
    const bool known = std::any_of(e.inputs.begin(), e.inputs.end(),
                                   [&](const Labels& l) { return Has(l, e.output[i]); });
    const auto n = std::count(e.output.begin(), e.output.end(), e.output[i]);
    if (!known || n != 1) {
      Fail("the output of '", text, "' must name axes of the operands, each once");
    }
  }
  return e;
}

}  // namespace

Tensor Einsum(absl::string_view equation, absl::Span<const Tensor> tensors, CallSite at) {
  Call call("Einsum", at, tensors);
  if (tensors.empty()) Fail("needs at least one operand for '", equation, "'");
  const Equation e = Parse(equation, tensors);
  DType type = tensors[0].dtype();
  for (const Tensor& t : tensors) type = Promote(type, t.dtype());
  const DType result = SumType(type), wide = AccumulateType(result);
  Term sum;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Labels later = e.output;
    for (size_t j = i + 1; j < tensors.size(); ++j) {
      later.insert(later.end(), e.inputs[j].begin(), e.inputs[j].end());
    }
    Labels needed = later;
    needed.insert(needed.end(), sum.labels.begin(), sum.labels.end());
    const Term next = Summed(Distinct({tensors[i].Cast(wide), e.inputs[i]}), needed);
    sum = i == 0 ? next : Product(sum, next, later);
  }
  return Arranged(sum, e.output).Cast(result);
}

}  // namespace tessera
