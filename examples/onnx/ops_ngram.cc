// Counts of n-grams of integers or strings.
#include <algorithm>

#include "examples/onnx/call.h"
#include "examples/onnx/import.h"
#include "examples/onnx/strings.h"

namespace tessera::onnx {
namespace {

// The pool's grams of one length, and which entry of the pool the first of them is.
struct Grams {
  int64_t length, first, count;
  std::vector<int64_t> items;
};
std::vector<Grams> PoolOf(Call& c) {
  std::vector<int64_t> pool = c.Ints("pool_int64s");
  for (const std::string& text : c.Strings("pool_strings")) {
    pool.push_back(static_cast<int64_t>(NumberOf(text)));
  }
  const std::vector<int64_t> starts = c.Ints("ngram_counts");
  std::vector<Grams> out;
  int64_t first = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<int64_t>(i) + 1;
    const auto size = static_cast<int64_t>(pool.size());
    const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : size;
    if (begin < 0 || end < begin || end > size || (end - begin) % length != 0) {
      c.Fail("ngram_counts do not fit a pool of ", size);
    }
    out.push_back({length, first, (end - begin) / length,
                   std::vector<int64_t>(pool.begin() + begin, pool.begin() + end)});
    first += out.back().count;
  }
  return out;
}

// How often each gram occurs in each row [N, C], with up to `skips` items left out between its own.
Tensor Occurrences(Call& c, const Tensor& x, const Grams& grams, int64_t skips) {
  const int64_t items = x.size(1), others = grams.length - 1;
  if (items <= others) return Tensor::Zeros({x.size(0), grams.count}, kInt32);
  // How far apart its items may lie, 1 or more.
  const int64_t steps = others == 0 ? 1 : std::min(skips, (items - 1) / others - 1) + 1;
  Tensor wanted = Tensor::From(grams.items, {grams.count, grams.length}, "CPU");
  if (!c.all_known()) wanted = c.importer().Placed(wanted);
  const Tensor first = Tensor::Arange(items, kInt64);
  const Tensor step = (Tensor::Arange(steps, kInt64) + 1).Unsqueeze(1);
  Tensor found = (first + step * others < items).Unsqueeze(2);  // [steps, items, grams]
  for (int64_t k = 0; k < grams.length; ++k) {
    const Tensor item = x.Take(first + step * k, 1);  // [N, steps, items]
    found = found & (item.Unsqueeze(3) == wanted.Select(1, k));
  }
  return found.Cast(kInt32).Sum({1, 2});
}

void TfIdfVectorizer(Call& c) {
  const bool texts = c.Find("pool_strings") != nullptr;
  if (texts == (c.Find("pool_int64s") != nullptr)) {
    c.Fail("wants a pool of integers or one of strings");
  }
  if (texts != IsStrings(c.Input(0))) {
    c.Fail("the input is ", ElementName(ElementOf(c.Input(0))), ", the pool of ",
           texts ? "strings" : "integers");
  }
  const Tensor in = c.In(0);
  if (in.rank() != 1 && in.rank() != 2) c.Fail("the input has shape ", in.shape().ToString());
  const Tensor x = (in.rank() == 1 ? in.Unsqueeze(0) : in).Cast(kInt64);
  const int64_t shortest = c.Int("min_gram_length"), longest = c.Int("max_gram_length");
  const int64_t skips = c.Int("max_skip_count");
  if (skips < 0) c.Fail("max_skip_count is ", skips);
  const std::vector<int64_t> to = c.Ints("ngram_indexes");
  const std::string mode = c.Choice("mode", {"TF", "IDF", "TFIDF"});
  const std::vector<double> weights = c.Floats("weights");
  const std::vector<Grams> pool = PoolOf(c);
  const auto total = static_cast<int64_t>(to.size());
  int64_t size = 0;
  for (const int64_t i : to) {
    if (i < 0 || i >= 1 << 20) c.Fail("an index of ngram_indexes is ", i);
    size = std::max(size, i + 1);
  }
  Tensor y = Tensor::Zeros({x.size(0), size});
  for (const Grams& grams : pool) {
    if (grams.first + grams.count > total) c.Fail("ngram_indexes has ", total, " entries");
    if (grams.length < shortest || grams.length > longest || grams.count == 0) continue;
    const Tensor counts = Occurrences(c, x, grams, skips);
    // Each gram has a place in the result, and a weight.
    for (int64_t g = 0; g < grams.count; ++g) {
      const auto at = static_cast<size_t>(grams.first + g);
      Tensor value = counts.SliceAxis(1, {g, g + 1}).Cast(kFloat32);
      if (mode == "IDF") value = (value > 0).Cast(kFloat32);
      if (mode != "TF" && at < weights.size()) value = value * weights[at];
      y = Where(Tensor::Arange(size, kInt64) == to[at], value, y);
    }
  }
  c.Out(in.rank() == 1 ? y.Squeeze(Axes{0}) : y);
}

constexpr OpRow kRows[] = {{"TfIdfVectorizer", TfIdfVectorizer}};

}  // namespace

absl::Span<const OpRow> NgramOps() { return kRows; }

}  // namespace tessera::onnx
