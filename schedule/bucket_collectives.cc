// Small reductions over places, none of which needs another's result, as one: what a collective
// costs is its start, not its bytes.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "schedule/localise.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr int64_t kSmallBytes = 64 << 10;     // on a place: larger ones are worth their own start
constexpr int64_t kBucketBytes = 1024 << 10;  // of all in a bucket
constexpr size_t kMostInBucket = 256;         // that one kernel joins

class Bucketer {
 public:
  explicit Bucketer(absl::Span<const UOp> roots) : order_(TopoSort(roots)) {
    for (const UOp& u : order_) {
      int depth = 0;
      for (const UOp& s : u.srcs()) depth = std::max(depth, depth_.at(s.get()));
      depth_.emplace(u.get(), depth + IsTransfer(u));
    }
    // Those of one depth do not depend on one another, and only on what is less deep; other nodes
    // of that depth come after them.
    std::stable_sort(order_.begin(), order_.end(), [&](const UOp& a, const UOp& b) {
      const int x = depth_.at(a.get()), y = depth_.at(b.get());
      return x != y ? x < y : IsTransfer(a) && !IsTransfer(b);
    });
  }

  std::vector<UOp> Run(absl::Span<const UOp> roots) {
    for (size_t i = 0; i < order_.size();) {
      const int depth = depth_.at(order_[i].get());
      size_t end = i;
      while (end < order_.size() && depth_.at(order_[end].get()) == depth &&
             IsTransfer(order_[end])) {
        ++end;
      }
      FillBuckets(absl::MakeSpan(order_).subspan(i, end - i));
      for (; i < order_.size() && depth_.at(order_[i].get()) == depth; ++i) {
        if (!done_.contains(order_[i].get())) done_.emplace(order_[i].get(), Rebuilt(order_[i]));
      }
    }
    std::vector<UOp> out;
    for (const UOp& r : roots) out.push_back(done_.at(r.get()));
    return out;
  }

 private:
  UOp Rebuilt(const UOp& u) const {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done_.at(s.get()));
    return u.WithSrcs(srcs);
  }

  static bool Small(const UOp& u) {
    if (!u.is(Op::kAllReduce) || !u.shape().Elements().is_int()) return false;
    const int64_t most = kSmallBytes / u.dtype().bytes();
    return u.shape().MaxElements() > 0 && u.shape().MaxElements() <= most;
  }

  // Reductions over the same places by the same op and of one dtype, in the order of the graph.
  void FillBuckets(absl::Span<const UOp> transfers) {
    std::vector<std::vector<UOp>> buckets;
    absl::flat_hash_map<const Node*, int64_t> bytes;  // of a bucket, by its first
    for (const UOp& u : transfers) {
      if (!Small(u)) continue;
      const int64_t more = u.shape().MaxElements() * u.dtype().bytes();
      const auto fits = [&](const std::vector<UOp>& b) {
        return b[0].arg() == u.arg() && b[0].dtype() == u.dtype() && b[0].device() == u.device() &&
               bytes[b[0].get()] + more <= kBucketBytes && b.size() < kMostInBucket;
      };
      auto bucket = std::find_if(buckets.begin(), buckets.end(), fits);
      if (bucket == buckets.end()) bucket = buckets.emplace(buckets.end());
      bucket->push_back(u);
      bytes[bucket->front().get()] += more;
    }
    for (const std::vector<UOp>& b : buckets) {
      if (b.size() > 1) ReduceTogether(b);
    }
  }

  void ReduceTogether(const std::vector<UOp>& bucket) {
    std::vector<UOp> parts;
    for (const UOp& u : bucket) {
      const Extents flat = {u.shape().Elements()};
      parts.push_back(UOp::Make(Op::kReshape, {done_.at(u.src(0).get())}, flat));
    }
    const UOp joined = UOp::Make(Op::kCat, parts, int64_t{0});
    const UOp sum = UOp::Make(Op::kAllReduce, {joined}, bucket[0].arg());
    sum.SetMarks(bucket[0]);
    sum.SetNote(absl::StrCat(bucket.size(), " small reductions in one"));
    Extent at = 0;
    for (const UOp& u : bucket) {
      const Extent end = at + u.shape().Elements();
      const UOp part = UOp::Make(Op::kShrink, {sum}, Pairs{{at, end}});
      done_.emplace(u.get(), UOp::Make(Op::kReshape, {part}, u.shape().ToExtents()));
      at = end;
    }
  }

  std::vector<UOp> order_;
  absl::flat_hash_map<const Node*, int> depth_;
  absl::flat_hash_map<const Node*, UOp> done_;
};

}  // namespace

std::vector<UOp> BucketCollectives(absl::Span<const UOp> roots) {
  return Bucketer(roots).Run(roots);
}

}  // namespace tessera
