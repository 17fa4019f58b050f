// Products of which one's rows are the other's operand, as softmax(Q K^T) V: one kernel, if what
// lies between them is whole rows. Nothing of the first product then leaves the core's caches, or
// the memory of a GPU's block.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/flags.h"
#include "graph/product_chain.h"
#include "graph/rewrite.h"
#include "graph/walk.h"
#include "schedule/groups.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr size_t kMostBetween = 4;  // groups between the two products

class Chainer {
 public:
  Chainer(Fusion& fusion, absl::Span<const UOp> roots, const Targets& targets, IndexForms& forms)
      : fusion_(fusion), targets_(targets), forms_(forms) {
    for (const UOp& r : roots) kept_.insert(r.get());
  }

  void Run() {
    const int n = static_cast<int>(fusion_.groups.size());
    multiplies_.resize(n);
    readers_.resize(n);
    for (int g = 0; g < n; ++g) {
      multiplies_[g] = HoldsProduct(g);
      for (const UOp& in : fusion_.groups[g].inputs) {
        if (auto it = fusion_.group_of.find(in.get()); it != fusion_.group_of.end()) {
          readers_[it->second].push_back(g);
        }
      }
    }
    bool any = false;
    for (int g = 0; g < n; ++g) {
      if (fusion_.groups[g].roots.size() != 1) continue;
      if (multiplies_[g]) any |= ChainFrom(g);
    }
    if (any) RemoveEmptyGroups(fusion_);
  }

 private:
  const UOp& Root(int g) const { return fusion_.groups[g].roots[0]; }

  const Target& TargetOf(int g) const { return targets_.Of(Root(g).device()); }

  // Whether a group's own nodes have a product.
  bool HoldsProduct(int g) const {
    bool product = false;
    WalkDown({&Root(g), 1}, [&](const UOp& u) {
      if (!(u == Root(g)) && fusion_.group_of.contains(u.get())) return false;
      product |= IsContraction(u);
      return !product && !u.is(Op::kReduce);
    });
    return product;
  }

  // The groups from one with a product up to the next product, where nothing else reads them.
  std::vector<int> Between(int first, int& second) {
    std::vector<int> out = {first};
    second = -1;
    for (size_t i = 0; i < out.size(); ++i) {
      if (kept_.contains(Root(out[i]).get()) || fusion_.groups[out[i]].roots.size() != 1) return {};
      if (Root(out[i]).is(Op::kAssign)) return {};
      for (int reader : readers_[out[i]]) {
        if (std::find(out.begin(), out.end(), reader) != out.end() || reader == second) continue;
        const bool product = fusion_.groups[reader].roots.size() == 1 && multiplies_[reader];
        if (!product) {
          out.push_back(reader);
        } else if (second < 0) {
          second = reader;
        } else {
          return {};
        }
        if (out.size() > kMostBetween + 1) return {};
      }
    }
    return out;
  }

  bool ChainFrom(int first) {
    int second;
    const std::vector<int> between = Between(first, second);
    if (between.size() < 2 || second < 0) return false;
    for (int g : between) fusion_.group_of.erase(Root(g).get());
    FusedGroup& chain = fusion_.groups[second];
    std::vector<UOp> inputs = InputsOf(chain, fusion_);
    if (Fits(second, inputs)) {
      chain.inputs = std::move(inputs);
      for (int g : between) fusion_.groups[g].roots.clear();
      return true;
    }
    for (int g : between) fusion_.group_of[Root(g).get()] = g;
    return false;
  }

  // Whether the group, with all that it reads now inside of it, is a chain that pays.
  bool Fits(int g, const std::vector<UOp>& inputs) {
    Substitution params;
    int64_t slot = 1;
    for (const UOp& in : inputs) {
      params.emplace(in, UOp::Make(Op::kParam, in.dtype(), {},
                                   ParamArg{slot++, in.shape().ToExtents(), in.device()}));
    }
    const UOp& root = Root(g);
    const UOp source = root.is(Op::kAssign) ? UOp(root.src(2)) : WrittenFor(root);
    const UOp value = Substitute(source, params);
    const auto [known, fresh] = fits_.try_emplace(value, false);
    if (fresh) {
      const UOp target = UOp::Make(Op::kParam, value.dtype(), {},
                                   ParamArg{0, value.shape().ToExtents(), value.device()});
      const absl::StatusOr<UOp> sink = IndexForm({{KernelOutput{value, target}}}, forms_);
      known->second = sink.ok() && Pays(*sink, TargetOf(g));
    }
    return known->second;
  }

  bool Pays(const UOp& sink, const Target& target) const {
    const RangeSets sets(sink);
    const std::optional<ProductChain> c = FindProductChain(sets);
    if (!c) return false;
    // Blocks of threads keep no scores but those of a few keys at a time.
    if (target.dialect == Dialect::kCuda) return ChainTileFor(*c, sets, target).has_value();
    // Cores have rows of their own, and some of them together in cache.
    int64_t rows = 1;
    for (const auto& loops : {c->rows, c->batch}) {
      for (const UOp& r : loops) rows *= std::max<int64_t>(1, r.src(0).vmax());
    }
    if (rows < 2 * target.cores) return false;
    const int64_t bytes = 2 * c->first.dtype().bytes() * sets.Iterations(sets.Closed(c->second));
    const int64_t cache = std::max(target.l2_bytes, target.cache_bytes / (2 * target.cores));
    return bytes <= cache / kLeastRows;
  }

  static constexpr int64_t kLeastRows = 4;  // of a block
  Fusion& fusion_;
  const Targets& targets_;
  IndexForms& forms_;
  absl::flat_hash_set<const Node*> kept_;  // the plan's results
  std::vector<bool> multiplies_;           // before any were chained
  std::vector<std::vector<int>> readers_;
  absl::flat_hash_map<UOp, bool> fits_;
};

}  // namespace

void ChainProducts(Fusion& fusion, absl::Span<const UOp> roots, const Targets& targets,
                   IndexForms& forms) {
  if (IntFlag(Flag::kNoOpt) != 0) return;
  Chainer(fusion, roots, targets, forms).Run();
}

}  // namespace tessera
