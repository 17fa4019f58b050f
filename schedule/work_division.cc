// The two passes of work division.
#include "schedule/work_division.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/kernel_form.h"
#include "graph/status.h"

namespace tessera {
namespace {

// What splits of an axis divide: its sticks, or those of its granularity.
int64_t Units(const IterationAxis& axis) {
  return std::max<int64_t>(1, (axis.granularity > 0 ? axis.granularity : axis.size) / axis.stick);
}

// In how many parts pass 2 splits an axis, at most so many.
int64_t SplitOf(const IterationAxis& axis, int64_t most) {
  const int64_t units = Units(axis), even = LargestDivisor(units, most);
  if (!axis.uneven || 2 * even > std::min(units, most)) return even;
  return std::max<int64_t>(1, std::min(units, most));
}

// The splits of an axis that are multiples of what is committed, from the smallest on.
std::vector<int64_t> Candidates(const IterationAxis& axis, int64_t committed, int64_t cores) {
  std::vector<int64_t> out;
  const int64_t units = Units(axis);
  for (int64_t s = committed; s <= std::min(units, cores); s += committed) {
    if (units % s == 0) out.push_back(s);
  }
  return out;
}

int ReductionsSplit(const IterationSpace& space, const Division& division) {
  int count = 0;
  for (size_t i = 0; i < space.axes.size(); ++i) {
    count += space.axes[i].reduction && division.splits[i] > 1;
  }
  return count;
}

// Searches all combinations of splits of the axes that move in one access.
class SpanSearch {
 public:
  SpanSearch(const IterationSpace& space, const IterationAccess& access,
             const DivisionLimits& limits, const Division& committed)
      : space_(space), access_(access), limits_(limits), now_(committed) {
    for (size_t i = 0; i < space.axes.size(); ++i) {
      if (access.strides[i] != 0 && space.axes[i].size > 1) axes_.push_back(i);
    }
    // Outer first: where the tensor is furthest apart.
    std::stable_sort(axes_.begin(), axes_.end(), [&](size_t a, size_t b) {
      return std::abs(access.strides[a]) > std::abs(access.strides[b]);
    });
  }

  // The fewest cores that fit; of several such the largest span.
  bool Run(Division& out) {
    Try(0);
    if (best_.splits.empty()) return false;
    out = best_;
    return true;
  }
  int64_t least_span() const { return least_; }

 private:
  void Try(size_t depth) {
    if (now_.cores() > limits_.cores) return;
    if (ReductionsSplit(space_, now_) > limits_.reduction_axes) return;
    const int64_t span = Span(space_, access_, now_);
    least_ = std::min(least_, span);
    if (span <= limits_.span_bytes) {
      const int64_t cores = now_.cores();
      const bool fewer = best_.splits.empty() || cores < best_.cores();
      if (fewer || (cores == best_.cores() && span > best_span_)) {
        best_ = now_;
        best_span_ = span;
      }
      return;  // more splits only cost cores
    }
    if (depth == axes_.size()) return;
    const size_t axis = axes_[depth];
    const int64_t committed = now_.splits[axis];
    for (const int64_t s : Candidates(space_.axes[axis], committed, limits_.cores)) {
      now_.splits[axis] = s;
      Try(depth + 1);
    }
    now_.splits[axis] = committed;
  }

  const IterationSpace& space_;
  const IterationAccess& access_;
  const DivisionLimits& limits_;
  std::vector<size_t> axes_;
  Division now_, best_;
  int64_t best_span_ = 0, least_ = INT64_MAX;
};

}  // namespace

int64_t Division::cores() const {
  return std::accumulate(splits.begin(), splits.end(), int64_t{1}, std::multiplies<>());
}

int64_t Span(const IterationSpace& space, const IterationAccess& access, const Division& division) {
  int64_t elements = 1;
  for (size_t i = 0; i < space.axes.size(); ++i) {
    const int64_t each = (space.axes[i].size + division.splits[i] - 1) / division.splits[i];
    int64_t reach;
    if (__builtin_mul_overflow(std::max<int64_t>(0, each - 1), std::abs(access.strides[i]),
                               &reach) ||
        __builtin_add_overflow(elements, reach, &elements)) {
      return INT64_MAX;
    }
  }
  int64_t bytes;
  return __builtin_mul_overflow(elements, access.element_bytes, &bytes) ? INT64_MAX : bytes;
}

absl::StatusOr<Division> FitSpans(const IterationSpace& space, const DivisionLimits& limits) {
  Division division{std::vector<int64_t>(space.axes.size(), 1)};
  for (const IterationAccess& access : space.accesses) {
    if (Span(space, access, division) <= limits.span_bytes) continue;
    SpanSearch search(space, access, limits, division);
    if (search.Run(division)) continue;
    const auto size = [](std::string* out, const IterationAxis& a) {
      absl::StrAppend(out, a.size, a.reduction ? " (reduced)" : "");
    };
    return absl::ResourceExhaustedError(absl::StrCat(
        "one core would reach over ", Span(space, access, division), " bytes of a tensor, and ",
        search.least_span(), " however the loops ", absl::StrJoin(space.axes, " x ", size),
        " are split over ", limits.cores, " cores; the target allows ", limits.span_bytes,
        ": compute it in parts, or in another order of its axes"));
  }
  return division;
}

Division UseCores(const IterationSpace& space, const DivisionLimits& limits, Division committed) {
  std::vector<size_t> outputs, reductions;
  for (size_t i = 0; i < space.axes.size(); ++i) {
    (space.axes[i].reduction ? reductions : outputs).push_back(i);
  }
  // Axes that are split already take what the others leave.
  std::stable_sort(outputs.begin(), outputs.end(), [&](size_t a, size_t b) {
    const bool free_a = committed.splits[a] == 1, free_b = committed.splits[b] == 1;
    return free_a != free_b ? free_a : Units(space.axes[a]) > Units(space.axes[b]);
  });
  for (const size_t i : outputs) {
    const int64_t now = committed.splits[i];
    committed.splits[i] =
        now * LargestDivisor(Units(space.axes[i]) / now, limits.cores / committed.cores());
  }
  if (ReductionsSplit(space, committed) >= limits.reduction_axes) return committed;
  size_t best = space.axes.size();
  int64_t most = 1;
  for (const size_t i : reductions) {
    if (committed.splits[i] > 1) continue;
    const int64_t split = SplitOf(space.axes[i], limits.cores / committed.cores());
    if (split > most) {
      best = i;
      most = split;
    }
  }
  if (best < space.axes.size()) committed.splits[best] = most;
  return committed;
}

int64_t EachPart(const IterationAxis& axis, int64_t split) {
  return Units(axis) / split * std::min(axis.stick, axis.size);
}

double Utilisation(int64_t n, int64_t workers, int64_t cores) {
  const int64_t most = n / workers + (n % workers != 0 ? 1 : 0);
  return static_cast<double>(n) / (static_cast<double>(most) * static_cast<double>(cores));
}

}  // namespace tessera
