// Parts of values that are computed element by element.
#include "schedule/pointwise.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/rewrite.h"

namespace tessera {

UOp PartThrough(const UOp& x, absl::FunctionRef<bool(const UOp&)> elementwise,
                absl::FunctionRef<UOp(const UOp&)> part) {
  const std::vector<UOp> order = TopoSort({&x, 1});
  absl::flat_hash_set<const Node*> wanted = {x.get()};
  for (auto u = order.rbegin(); u != order.rend(); ++u) {
    if (!wanted.contains(u->get()) || !elementwise(*u) || u->rank() == 0) continue;
    for (const UOp& s : u->srcs()) wanted.insert(s.get());
  }
  absl::flat_hash_map<const Node*, UOp> done;
  for (const UOp& u : order) {
    if (!wanted.contains(u.get())) continue;
    UOp made = u;
    if (!elementwise(u)) {
      made = part(u);
      if (!made) return UOp();
    } else if (u.rank() > 0) {
      absl::InlinedVector<UOp, 3> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(done.at(s.get()));
      made = u.WithSrcs(srcs);
    }
    done.emplace(u.get(), std::move(made));
  }
  return done.at(x.get());
}

}  // namespace tessera
