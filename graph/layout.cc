// Layouts and their cuts.
#include "graph/layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/status.h"

namespace tessera {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// The smaller of n and a product that may be beyond all numbers.
int64_t AtMost(int64_t n, int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? n : std::min(n, product);
}

// Boundary i of n elements over p pieces by a layout that is no Clip.
int64_t Boundary(const Layout& layout, int64_t n, int64_t p, int64_t i) {
  switch (layout.kind()) {
    case Layout::Kind::kBalanced:
      return n / p * i + std::min(i, n % p);
    case Layout::Kind::kAligned: {
      const int64_t units = CeilDiv(n, layout.unit());
      return AtMost(n, layout.unit(), units / p * i + std::min(i, units % p));
    }
    case Layout::Kind::kCeil:
      return AtMost(n, CeilDiv(n, p), i);
    case Layout::Kind::kSizes:
      return std::accumulate(layout.sizes().begin(), layout.sizes().begin() + i, int64_t{0});
    case Layout::Kind::kClip:
      break;
  }
  CHECK(false, "a Clip within a nest");
  return 0;
}

void CutPiece(absl::Span<const NestLevel> nest, int64_t begin, int64_t n, Cut& out) {
  const NestLevel& level = nest[0];
  for (int64_t i = 0; i < level.parts; ++i) {
    const int64_t a = Boundary(level.layout, n, level.parts, i);
    if (nest.size() == 1) {
      out.push_back(begin + a);
    } else {
      const int64_t b = Boundary(level.layout, n, level.parts, i + 1);
      CutPiece(nest.subspan(1), begin + a, b - a, out);
    }
  }
}

int64_t Pieces(absl::Span<const NestLevel> nest) {
  int64_t n = 1;
  for (const NestLevel& l : nest) n *= l.parts;
  return n;
}

// Without its Clip, and the extent that it cuts.
Nest Unclipped(absl::Span<const NestLevel> nest, int64_t& n) {
  Nest out(nest.begin(), nest.end());
  if (!out.empty() && out[0].layout.kind() == Layout::Kind::kClip) {
    n = out[0].layout.n();
    out[0].layout = Layout(out[0].layout.base());
  }
  return out;
}

absl::Status CheckLevel(const NestLevel& level, int64_t n, absl::Span<const int64_t> pieces) {
  const Layout& l = level.layout;
  if (l.kind() == Layout::Kind::kAligned && l.unit() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a unit of ", l.unit(), " is below 1"));
  }
  if (l.kind() != Layout::Kind::kSizes) return absl::OkStatus();
  if (static_cast<int64_t>(l.sizes().size()) != level.parts) {
    return absl::InvalidArgumentError(absl::StrCat(l.ToString(), " names ", l.sizes().size(),
                                                   " pieces for ", level.parts, " places"));
  }
  int64_t sum = 0;
  for (int64_t s : l.sizes()) {
    if (s < 0 || __builtin_add_overflow(sum, s, &sum)) {
      return absl::InvalidArgumentError(absl::StrCat(l.ToString(), " has a size of ", s));
    }
  }
  for (int64_t piece : pieces) {
    if (piece == sum) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(l.ToString(), " adds up to ", sum, " elements of ", piece,
                     pieces.size() > 1 ? "; inner sizes need equal outer pieces" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

Layout Layout::Aligned(int64_t unit) {
  Layout l;
  if (unit == 1) return l;
  l.kind_ = Kind::kAligned;
  l.unit_ = unit;
  return l;
}

Layout Layout::Ceil() {
  Layout l;
  l.kind_ = Kind::kCeil;
  return l;
}

Layout Layout::Sizes(std::vector<int64_t> sizes) {
  Layout l;
  l.kind_ = Kind::kSizes;
  l.sizes_ = std::move(sizes);
  return l;
}

Layout Layout::Clip(const Layout& base, int64_t n, int64_t lo, int64_t hi) {
  if (base.kind() == Kind::kClip) {
    return Clip(base.base(), base.n(), base.lo() + lo, base.lo() + hi);
  }
  if (lo == 0 && hi == n) return base;
  Layout l;
  l.kind_ = Kind::kClip;
  l.base_ = std::make_shared<const Layout>(base);
  l.n_ = n;
  l.lo_ = lo;
  l.hi_ = hi;
  return l;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.kind_ == b.kind_ && a.unit_ == b.unit_ && a.n_ == b.n_ && a.lo_ == b.lo_ &&
         a.hi_ == b.hi_ && a.sizes_ == b.sizes_ && !a.base_ == !b.base_ &&
         (!a.base_ || *a.base_ == *b.base_);
}

bool operator<(const Layout& a, const Layout& b) {
  const auto key = [](const Layout& l) {
    return std::tie(l.kind_, l.unit_, l.sizes_, l.n_, l.lo_, l.hi_);
  };
  if (key(a) != key(b)) return key(a) < key(b);
  return a.base_ && b.base_ && *a.base_ < *b.base_;
}

std::string Layout::ToString() const {
  switch (kind_) {
    case Kind::kBalanced:
      return "balanced";
    case Kind::kAligned:
      return absl::StrCat("aligned(", unit_, ")");
    case Kind::kCeil:
      return "ceil";
    case Kind::kSizes:
      return absl::StrCat("sizes(", absl::StrJoin(sizes_, ","), ")");
    case Kind::kClip:
      return absl::StrCat("clip(", base_->ToString(), ",", n_, ",", lo_, ",", hi_, ")");
  }
  return "";
}

absl::StatusOr<Layout> Layout::Parse(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("layout: '", text, "' is none of balanced, aligned(4), ceil, sizes(1,2), ",
                   "clip(balanced,8,1,6)"));
  if (text == "balanced") return Layout();
  if (text == "ceil") return Ceil();
  const size_t open = text.find('(');
  if (open == absl::string_view::npos || text.back() != ')') return bad;
  const absl::string_view name = text.substr(0, open);
  absl::string_view inside = text.substr(open + 1, text.size() - open - 2);
  Layout base;
  if (name == "clip") {
    // The base may hold commas of its own: the last three parts are numbers.
    size_t cut = inside.size();
    for (int i = 0; i < 3 && cut != absl::string_view::npos; ++i) cut = inside.rfind(',', cut - 1);
    if (cut == absl::string_view::npos || cut == 0) return bad;
    // A clip of a clip is one clip, and is written so.
    if (absl::StartsWith(inside, "clip")) return bad;
    ASSIGN_OR_RETURN(base, Parse(inside.substr(0, cut)));
    inside = inside.substr(cut + 1);
  }
  std::vector<int64_t> numbers;
  for (absl::string_view part : absl::StrSplit(inside, ',', absl::SkipEmpty())) {
    numbers.emplace_back();
    if (!absl::SimpleAtoi(part, &numbers.back())) return bad;
  }
  if (name == "aligned" && numbers.size() == 1 && numbers[0] >= 1) return Aligned(numbers[0]);
  if (name == "sizes") return Sizes(std::move(numbers));
  if (name == "clip" && numbers.size() == 3) return Clip(base, numbers[0], numbers[1], numbers[2]);
  return bad;
}

absl::Status CheckNest(absl::Span<const NestLevel> nest, int64_t n) {
  for (size_t i = 0; i < nest.size(); ++i) {
    if (nest[i].layout.kind() != Layout::Kind::kClip) continue;
    if (i > 0) return absl::InvalidArgumentError("only the outermost layout of an axis may clip");
    int64_t length = 0;
    if (nest[i].layout.n() < 0 ||
        __builtin_sub_overflow(nest[i].layout.hi(), nest[i].layout.lo(), &length) || length != n) {
      return absl::InvalidArgumentError(
          absl::StrCat(nest[i].layout.ToString(), " is not of ", n, " elements"));
    }
  }
  const Nest levels = Unclipped(nest, n);
  std::vector<int64_t> pieces = {n};
  for (size_t i = 0; i < levels.size(); ++i) {
    RETURN_IF_ERROR(CheckLevel(levels[i], n, pieces));
    if (i + 1 == levels.size()) break;
    const Cut cut = CutAxis(absl::MakeConstSpan(levels).subspan(0, i + 1), n);
    pieces.clear();
    for (size_t p = 0; p + 1 < cut.size(); ++p) pieces.push_back(cut[p + 1] - cut[p]);
  }
  return absl::OkStatus();
}

Cut CutAxis(absl::Span<const NestLevel> nest, int64_t n) {
  Cut out;
  if (nest.empty()) return {0, n};
  out.reserve(Pieces(nest) + 1);
  const Layout& outer = nest[0].layout;
  if (outer.kind() != Layout::Kind::kClip) {
    CutPiece(nest, 0, n, out);
    out.push_back(n);
    return out;
  }
  int64_t whole = n;
  const Nest levels = Unclipped(nest, whole);
  CutPiece(levels, 0, whole, out);
  out.push_back(whole);
  for (int64_t& b : out) b = std::clamp(b, outer.lo(), outer.hi()) - outer.lo();
  out.front() = 0;
  out.back() = n;
  return out;
}

namespace {

// The layouts of one level, in the order of forms, that may cut the pieces' extents into parts
// with these boundaries; `pieces` and `cuts` side by side.
struct Wanted {
  int64_t n;
  Cut cut;  // from 0 to n
};

bool Fits(const Layout& layout, int64_t parts, absl::Span<const Wanted> wanted) {
  for (const Wanted& w : wanted) {
    for (int64_t i = 0; i <= parts; ++i) {
      if (Boundary(layout, w.n, parts, i) != w.cut[i]) return false;
    }
  }
  return true;
}

// The units that boundaries inside the pieces allow: divisors of their greatest common divisor.
std::vector<int64_t> Units(absl::Span<const Wanted> wanted) {
  int64_t g = 0, longest = 0;
  for (const Wanted& w : wanted) {
    for (int64_t b : w.cut) {
      if (b < w.n) g = std::gcd(g, b);
    }
    longest = std::max(longest, w.n);
  }
  if (g == 0) return {longest};  // all in the first piece
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d <= g / d && d < (int64_t{1} << 20); ++d) {
    if (g % d != 0) continue;
    low.push_back(d);
    if (d != g / d) high.push_back(g / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::optional<Layout> WriteLevel(int64_t parts, absl::Span<const Wanted> wanted) {
  if (Fits(Layout(), parts, wanted)) return Layout();
  for (int64_t unit : Units(wanted)) {
    if (unit > 1 && Fits(Layout::Aligned(unit), parts, wanted)) return Layout::Aligned(unit);
  }
  if (Fits(Layout::Ceil(), parts, wanted)) return Layout::Ceil();
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(wanted[0].cut[i + 1] - wanted[0].cut[i]);
  Layout fixed = Layout::Sizes(std::move(sizes));
  for (const Wanted& w : wanted) {
    if (w.n != wanted[0].n) return std::nullopt;
  }
  return Fits(fixed, parts, wanted) ? std::optional<Layout>(std::move(fixed)) : std::nullopt;
}

}  // namespace

std::optional<std::vector<Layout>> WriteCut(absl::Span<const int64_t> parts, const Cut& cut) {
  std::vector<Layout> out;
  int64_t inside = static_cast<int64_t>(cut.size()) - 1, outer = 1;
  for (int64_t p : parts) {
    inside /= p;
    std::vector<Wanted> wanted;
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t first = o * p * inside, begin = cut[first];
      Wanted w{cut[first + p * inside] - begin, {}};
      for (int64_t i = 0; i <= p; ++i) w.cut.push_back(cut[first + i * inside] - begin);
      wanted.push_back(std::move(w));
    }
    std::optional<Layout> level = WriteLevel(p, wanted);
    if (!level) return std::nullopt;
    out.push_back(*std::move(level));
    outer *= p;
  }
  return out;
}

Nest Canonical(absl::Span<const NestLevel> nest, int64_t n) {
  Nest out(nest.begin(), nest.end());
  bool plain = true;
  for (const NestLevel& l : nest) plain &= l.layout.kind() == Layout::Kind::kBalanced;
  if (plain) return out;
  absl::InlinedVector<int64_t, 2> parts;
  for (const NestLevel& l : nest) parts.push_back(l.parts);
  const auto layouts = WriteCut(parts, CutAxis(nest, n));
  for (size_t i = 0; layouts && i < out.size(); ++i) out[i].layout = (*layouts)[i];
  return out;
}

std::optional<Cut> ScaleCut(const Cut& cut, int64_t num, int64_t den) {
  const int64_t g = std::gcd(num, den);
  if (g == 0) return std::nullopt;
  num /= g;
  den /= g;
  Cut out;
  for (int64_t b : cut) {
    int64_t scaled;
    if (den == 0 || b % den != 0 || __builtin_mul_overflow(b / den, num, &scaled)) {
      return std::nullopt;
    }
    out.push_back(scaled);
  }
  return out;
}

int64_t FinestUnit(int64_t num, int64_t den) {
  const int64_t g = std::gcd(num, den);
  return g == 0 ? 1 : std::max<int64_t>(1, den / g);
}

Interval Intersect(const Interval& a, const Interval& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return {begin, std::max(begin, end)};
}

}  // namespace tessera
