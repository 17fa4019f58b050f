// Layouts: golden cuts, and every layout and nest against the rules written out element by element.
#include "graph/layout.h"

#include <numeric>

#include "tests/testing.h"

namespace tessera {
namespace {

std::vector<int64_t> SizesOf(const Cut& cut) {
  std::vector<int64_t> out;
  for (size_t i = 0; i + 1 < cut.size(); ++i) out.push_back(cut[i + 1] - cut[i]);
  return out;
}

std::vector<int64_t> Cuts(const Layout& l, int64_t n, int64_t p) {
  const NestLevel level{p, l};
  return SizesOf(CutAxis({&level, 1}, n));
}

using V = std::vector<int64_t>;

TEST(Layout, Golden) {
  EXPECT_EQ(Cuts(Layout(), 10, 4), (V{3, 3, 2, 2}));
  EXPECT_EQ(Cuts(Layout(), 2, 4), (V{1, 1, 0, 0}));
  EXPECT_EQ(Cuts(Layout(), 20, 6), (V{4, 4, 3, 3, 3, 3}));
  EXPECT_EQ(Cuts(Layout(), 7, 3), (V{3, 2, 2}));
  EXPECT_EQ(Cuts(Layout(), 1, 3), (V{1, 0, 0}));
  EXPECT_EQ(Cuts(Layout::Ceil(), 10, 4), (V{3, 3, 3, 1}));
  EXPECT_EQ(Cuts(Layout::Ceil(), 6, 4), (V{2, 2, 2, 0}));
  EXPECT_EQ(Cuts(Layout::Ceil(), 12, 8), (V{2, 2, 2, 2, 2, 2, 0, 0}));
  EXPECT_EQ(Cuts(Layout::Aligned(2), 12, 4), (V{4, 4, 2, 2}));
  EXPECT_EQ(Cuts(Layout::Aligned(4), 10, 2), (V{8, 2}));
  const Nest nest = {{2, Layout()}, {3, Layout()}};
  EXPECT_EQ(SizesOf(CutAxis(nest, 10)), (V{2, 2, 1, 2, 2, 1}));
  // (6, 2) on axis 0 over 4, merged to 12.
  const NestLevel rows{4, Layout()};
  const auto merged = ScaleCut(CutAxis({&rows, 1}, 6), 2, 1);
  ASSERT_TRUE(merged);
  EXPECT_EQ(SizesOf(*merged), (V{4, 4, 2, 2}));
  EXPECT_EQ(WriteCut(V{4}, *merged)->front(), Layout::Aligned(2));
}

TEST(Layout, ClipsLieWhereTheyLay) {
  const Layout part = Layout::Clip(Layout(), 8, 3, 7);
  EXPECT_EQ(Cuts(part, 4, 4), (V{0, 1, 2, 1}));
  EXPECT_EQ(Layout::Clip(part, 4, -3, 5), Layout());  // padded back
  EXPECT_EQ(Cuts(Layout::Clip(Layout(), 4, -2, 5), 7, 2), (V{4, 3}));
  EXPECT_EQ(Cuts(Layout::Clip(Layout(), 8, 8, 8), 0, 2), (V{0, 0}));
}

TEST(Layout, RefusesWhatDoesNotFit) {
  const auto check = [](std::vector<NestLevel> nest, int64_t n) { return CheckNest(nest, n); };
  EXPECT_OK(check({{2, Layout::Sizes({1, 3})}}, 4));
  EXPECT_THAT(check({{2, Layout::Sizes({1, 2})}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "adds up to 3 elements of 4"));
  EXPECT_THAT(check({{3, Layout::Sizes({1, 3})}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "names 2 pieces for 3 places"));
  EXPECT_OK(check({{2, Layout()}, {2, Layout::Sizes({2, 1})}}, 6));
  EXPECT_THAT(check({{2, Layout()}, {2, Layout::Sizes({2, 1})}}, 5),
              StatusIs(absl::StatusCode::kInvalidArgument, "equal outer pieces"));
  EXPECT_THAT(check({{2, Layout()}, {2, Layout::Clip(Layout(), 4, 1, 3)}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "only the outermost"));
  EXPECT_THAT(check({{2, Layout::Clip(Layout(), 4, 1, 3)}}, 3),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not of 3 elements"));
}

TEST(Layout, TextReadsBack) {
  for (const Layout& l :
       {Layout(), Layout::Aligned(8), Layout::Ceil(), Layout::Sizes({3, 0, 2}), Layout::Sizes({}),
        Layout::Clip(Layout::Sizes({3, 1}), 4, -1, 3), Layout::Clip(Layout::Ceil(), 9, 2, 12)}) {
    EXPECT_THAT(Layout::Parse(l.ToString()), IsOkAndHolds(l));
  }
  for (const char* bad : {"", "aligned", "aligned(0)", "sizes(1", "clip(ceil,1,2)", "even"}) {
    EXPECT_FALSE(Layout::Parse(bad).ok()) << bad;
  }
}

// Every piece of every layout, by its definition and element by element.
int64_t OwnerOf(const Layout& l, int64_t n, int64_t p, int64_t element) {
  std::vector<int64_t> owner;
  switch (l.kind()) {
    case Layout::Kind::kBalanced:
      for (int64_t i = 0; i < p; ++i) owner.insert(owner.end(), n / p + (i < n % p), i);
      break;
    case Layout::Kind::kCeil:
      for (int64_t i = 0; i < n; ++i) owner.push_back(i / ((n + p - 1) / p));
      break;
    case Layout::Kind::kAligned: {
      const int64_t units = (n + l.unit() - 1) / l.unit();
      for (int64_t i = 0; i < n; ++i) {
        owner.push_back(OwnerOf(Layout(), units, p, i / l.unit()));
      }
      break;
    }
    case Layout::Kind::kSizes:
      for (int64_t i = 0; i < p; ++i) owner.insert(owner.end(), l.sizes()[i], i);
      break;
    case Layout::Kind::kClip: {
      const int64_t at = element + l.lo();
      return at < 0 ? 0 : at >= l.n() ? p - 1 : OwnerOf(l.base(), l.n(), p, at);
    }
  }
  return owner[element];
}

std::vector<Layout> LayoutsOf(int64_t n, int64_t p) {
  std::vector<Layout> out = {Layout(), Layout::Ceil()};
  for (int64_t unit = 2; unit <= 6; ++unit) out.push_back(Layout::Aligned(unit));
  std::vector<int64_t> sizes(p, 0);
  for (int64_t i = 0; i < n; ++i) ++sizes[(i * i + i / 3) % p];
  out.push_back(Layout::Sizes(sizes));
  std::reverse(sizes.begin(), sizes.end());
  out.push_back(Layout::Sizes(sizes));
  const size_t plain = out.size();
  for (size_t i = 0; i < plain; ++i) {
    // Clips whose result has n elements: of longer axes, of shorter ones with padding.
    if (out[i].kind() == Layout::Kind::kSizes) continue;
    for (const auto& [whole, lo] :
         {std::pair<int64_t, int64_t>{n + 3, 2}, {n + 1, 0}, {std::max<int64_t>(0, n - 2), -1}}) {
      out.push_back(Layout::Clip(out[i], whole, lo, lo + n));
    }
  }
  return out;
}

TEST(Layout, EveryPieceByItsDefinition) {
  for (int64_t n = 0; n <= 17; ++n) {
    for (int64_t p = 1; p <= 6; ++p) {
      for (const Layout& l : LayoutsOf(n, p)) {
        const NestLevel level{p, l};
        ASSERT_OK(CheckNest({&level, 1}, n));
        const Cut cut = CutAxis({&level, 1}, n);
        ASSERT_EQ(cut.size(), p + 1);
        ASSERT_EQ(cut.front(), 0);
        ASSERT_EQ(cut.back(), n);
        for (int64_t i = 0; i < p; ++i) {
          ASSERT_LE(cut[i], cut[i + 1]);
          for (int64_t e = cut[i]; e < cut[i + 1]; ++e) {
            ASSERT_EQ(OwnerOf(l, n, p, e), i) << l.ToString() << " of " << n << " over " << p;
          }
        }
      }
    }
  }
}

TEST(Layout, WrittenCutsAreThoseCutsAndSortFirst) {
  for (int64_t n = 0; n <= 17; ++n) {
    for (int64_t p = 1; p <= 6; ++p) {
      const std::vector<Layout> all = LayoutsOf(n, p);
      for (const Layout& l : all) {
        const NestLevel level{p, l};
        const Cut cut = CutAxis({&level, 1}, n);
        const auto written = WriteCut(V{p}, cut);
        ASSERT_TRUE(written);
        const NestLevel again{p, (*written)[0]};
        ASSERT_EQ(CutAxis({&again, 1}, n), cut) << l.ToString() << " of " << n << " over " << p;
        for (const Layout& other : all) {
          const NestLevel o{p, other};
          if (CutAxis({&o, 1}, n) == cut) {
            ASSERT_FALSE(other < (*written)[0]) << other.ToString();
          }
        }
      }
    }
  }
}

TEST(Layout, NestsCutEachPieceAgain) {
  for (int64_t n = 0; n <= 17; ++n) {
    for (int64_t p = 1; p <= 4; ++p) {
      for (int64_t q = 1; q <= 4; ++q) {
        for (const Layout& outer : LayoutsOf(n, p)) {
          for (const Layout& inner : {Layout(), Layout::Ceil(), Layout::Aligned(3)}) {
            const Nest nest = {{p, outer}, {q, inner}};
            ASSERT_OK(CheckNest(nest, n));
            const Cut cut = CutAxis(nest, n), outer_cut = CutAxis({nest.data(), 1}, n);
            // Gathering the inner level leaves the outer layout.
            for (int64_t i = 0; i <= p; ++i) ASSERT_EQ(cut[i * q], outer_cut[i]);
            const auto written = WriteCut(V{p, q}, cut);
            if (outer.kind() != Layout::Kind::kClip) {
              ASSERT_TRUE(written);
              for (int64_t i = 0; i < p; ++i) {
                const int64_t size = outer_cut[i + 1] - outer_cut[i];
                const NestLevel level{q, inner};
                const Cut piece = CutAxis({&level, 1}, size);
                for (int64_t j = 0; j <= q; ++j) ASSERT_EQ(cut[i * q + j], outer_cut[i] + piece[j]);
              }
            }
            if (written) {
              const Nest again = {{p, (*written)[0]}, {q, (*written)[1]}};
              ASSERT_OK(CheckNest(again, n));
              ASSERT_EQ(CutAxis(again, n), cut);
            }
          }
        }
      }
    }
  }
}

TEST(Layout, ImagesUnderSplitsAndMerges) {
  for (int64_t rows = 0; rows <= 17; ++rows) {
    for (int64_t p = 1; p <= 6; ++p) {
      for (const Layout& l : LayoutsOf(rows, p)) {
        for (int64_t k = 1; k <= 4; ++k) {
          const NestLevel level{p, l};
          const Cut cut = CutAxis({&level, 1}, rows);
          const auto merged = ScaleCut(cut, k, 1);
          ASSERT_TRUE(merged && WriteCut(V{p}, *merged));
          ASSERT_EQ(ScaleCut(*merged, 1, k), cut);
          // A split survives where each boundary is a multiple.
          bool whole = true;
          for (int64_t b : cut) whole &= b % k == 0;
          ASSERT_EQ(ScaleCut(cut, 1, k).has_value(), whole);
          if (rows % k == 0) {
            const NestLevel aligned{p, Layout::Aligned(FinestUnit(1, k))};
            ASSERT_TRUE(ScaleCut(CutAxis({&aligned, 1}, rows), 1, k));
          }
        }
      }
    }
  }
}

// The routine that everything else rests on, against a search through all elements.
TEST(Layout, PiecesMeetAnInterval) {
  for (int64_t n = 0; n <= 17; ++n) {
    for (int64_t p = 1; p <= 6; ++p) {
      for (const Layout& l : LayoutsOf(n, p)) {
        const NestLevel level{p, l};
        const Cut cut = CutAxis({&level, 1}, n);
        for (int64_t a = -1; a <= n + 1; ++a) {
          for (int64_t b = a; b <= n + 1; ++b) {
            for (int i = 0; i < p; ++i) {
              const int64_t shared = Intersect({cut[i], cut[i + 1]}, {a, b}).size();
              int64_t counted = 0;
              for (int64_t e = cut[i]; e < cut[i + 1]; ++e) counted += e >= a && e < b;
              ASSERT_EQ(shared, counted);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
