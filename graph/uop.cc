// The table of interned nodes, handles, extents and shapes.
#include "graph/uop.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>

#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_set.h"
#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/callsite.h"
#include "graph/hash.h"
#include "graph/index_algebra.h"
#include "graph/infer.h"
#include "graph/own_extent.h"
#include "graph/simplify.h"
#include "graph/spec.h"
#include "graph/status.h"
#include "graph/walk.h"

namespace tessera {
namespace {

std::atomic<int64_t> live_nodes{0};

struct HashArgValue {
  size_t operator()(std::monostate) const { return 0; }
  size_t operator()(Scalar s) const { return HashAll(s.bits); }
  size_t operator()(const VarArg& v) const { return HashAll(v.name, v.min, v.max); }
  size_t operator()(const BufferArg& b) const { return HashAll(b.buffer.get(), b.shape); }
  size_t operator()(const ParamArg& p) const { return HashAll(p.slot, p.shape, p.device); }
  size_t operator()(const Extents& e) const { return HashAll(e); }
  size_t operator()(const Ints& i) const { return HashAll(i); }
  size_t operator()(const Pairs& p) const { return HashAll(p); }
  size_t operator()(const WindowArg& w) const {
    return HashAll(w.axes, w.size, w.stride, w.dilation);
  }
  size_t operator()(const ReduceArg& r) const { return HashAll(r.op, r.axes); }
  size_t operator()(int64_t i) const { return HashAll(i); }
  size_t operator()(Device d) const { return HashAll(d); }
  size_t operator()(RangeArg r) const { return HashAll(r.id, r.kind); }
  size_t operator()(StageArg s) const { return HashAll(s.id, s.space, s.ahead); }
  size_t operator()(const std::string& s) const { return HashAll(s); }
  size_t operator()(const ExchangeArg& x) const {
    return HashAll(x.from->device, x.to->device, x.shape, x.op, x.over);
  }
};

struct NodeKey {
  Op op;
  DType dtype;
  absl::Span<const UOp> srcs;
  const Arg& arg;
  size_t hash;
};

// As HashAll, which takes several times as long over pointers.
size_t Mixed(size_t hash, uintptr_t more) {
  const absl::uint128 product = absl::uint128(hash ^ more) * 0x9ddfea08eb382d69u;
  return absl::Uint128High64(product) ^ absl::Uint128Low64(product);
}

NodeKey MakeKey(Op op, DType dtype, absl::Span<const UOp> srcs, const Arg& arg) {
  size_t h = HashAll(op, dtype, arg.value.index(), std::visit(HashArgValue(), arg.value));
  for (const UOp& s : srcs) h = Mixed(h, reinterpret_cast<uintptr_t>(s.get()));
  return {op, dtype, srcs, arg, h};
}

struct NodeHash {
  using is_transparent = void;
  size_t operator()(const Node* n) const { return n->hash; }
  size_t operator()(const NodeKey& k) const { return k.hash; }
};

struct NodeEq {
  using is_transparent = void;
  bool operator()(const Node* a, const Node* b) const { return a == b; }
  bool operator()(const Node* n, const NodeKey& k) const {
    return n->hash == k.hash && n->op == k.op && n->dtype == k.dtype &&
           n->num_srcs == k.srcs.size() && std::equal(k.srcs.begin(), k.srcs.end(), n->srcs()) &&
           n->arg == k.arg;
  }
  bool operator()(const NodeKey& k, const Node* n) const { return (*this)(n, k); }
};

Node* NewNode(const NodeKey& key, Arg arg) {
  void* memory = ::operator new(sizeof(Node) + key.srcs.size() * sizeof(UOp));
  Node* n = new (memory) Node;
  n->op = key.op;
  n->dtype = key.dtype;
  n->num_srcs = static_cast<uint32_t>(key.srcs.size());
  n->hash = key.hash;
  UOp* srcs = reinterpret_cast<UOp*>(n + 1);
  for (size_t i = 0; i < key.srcs.size(); ++i) new (srcs + i) UOp(key.srcs[i]);
  n->arg = std::move(arg);
  live_nodes.fetch_add(1, std::memory_order_relaxed);
  return n;
}

void FreeNode(Node* n) {
  UOp* srcs = reinterpret_cast<UOp*>(n + 1);
  for (uint32_t i = 0; i < n->num_srcs; ++i) srcs[i].~UOp();
  n->~Node();
  ::operator delete(n);
  live_nodes.fetch_sub(1, std::memory_order_relaxed);
}

// Nodes this thread has dropped and not yet freed: freeing one drops its sources, which join the
// list instead of recursing.
thread_local Node* dead_head = nullptr;
thread_local bool freeing = false;

}  // namespace

// The nodes alive, by content. A table entry holds no reference: a node whose count has reached
// zero is as good as absent, and is replaced by whoever finds it before its owner removes it.
class NodeTable {
 public:
  static NodeTable& Get() {
    static NodeTable& table = *new NodeTable;
    return table;
  }

  UOp Find(const NodeKey& key) {
    Part& part = PartOf(key.hash);
    std::lock_guard lock(part.mutex);
    return FindLocked(part, key);
  }

  // Adopts `fresh`, or frees it and returns the equal node that came first.
  UOp Insert(const NodeKey& key, Node* fresh) {
    Part& part = PartOf(key.hash);
    UOp winner;
    {
      std::lock_guard lock(part.mutex);
      winner = FindLocked(part, key);
      if (!winner) {
        part.nodes.insert(fresh);
        return UOp(fresh);
      }
    }
    FreeNode(fresh);
    return winner;
  }

  void Remove(Node* n) {
    Part& part = PartOf(n->hash);
    std::lock_guard lock(part.mutex);
    if (auto it = part.nodes.find(n); it != part.nodes.end() && *it == n) part.nodes.erase(it);
  }

 private:
  struct alignas(64) Part {
    std::mutex mutex;  // Debian's absl::Mutex checks for deadlocks, at the cost of the rest
    absl::flat_hash_set<Node*, NodeHash, NodeEq> nodes;
  };
  static constexpr size_t kParts = size_t{1} << 6;
  // By the highest bits: a part's own table goes by the lowest.
  Part& PartOf(size_t hash) { return parts_[hash >> 58]; }

  static UOp FindLocked(Part& part, const NodeKey& key) {
    auto it = part.nodes.find(key);
    if (it == part.nodes.end()) return UOp();
    int32_t refs = (*it)->refs.load(std::memory_order_relaxed);
    while (refs > 0) {
      if ((*it)->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel)) {
        return UOp(*it);
      }
    }
    part.nodes.erase(it);
    return UOp();
  }

  Part parts_[kParts];
};

void UOp::Drop(Node* node) {
  node->next_dead = dead_head;
  dead_head = node;
  if (freeing) return;
  freeing = true;
  while (Node* n = dead_head) {
    dead_head = n->next_dead;
    NodeTable::Get().Remove(n);
    if (Node* r = n->realized.load(std::memory_order_acquire)) UOp drop(r);
    FreeNode(n);
  }
  freeing = false;
}

absl::StatusOr<UOp> UOp::TryMake(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg) {
  const OpInfo& info = Info(op);
  // The dtype is part of the key, so it is found before the lookup; an op that declares none and
  // takes its source's is the common case.
  DType key_dtype = dtype;
  switch (info.type) {
    case TypeRule::kDeclared:
      break;
    case TypeRule::kVoid:
      key_dtype = kVoid;
      break;
    case TypeRule::kCompare:
      key_dtype = srcs.empty() ? kVoid : kBool.WithLanes(srcs[0].dtype().lanes());
      break;
    case TypeRule::kWhere:
      key_dtype = srcs.size() < 2 ? kVoid : srcs[1].dtype();
      break;
    default:
      key_dtype = srcs.empty() ? kVoid : srcs[0].dtype();
      break;
  }
  NodeKey key = MakeKey(op, key_dtype, srcs, arg);
  if (UOp found = NodeTable::Get().Find(key)) return found;
  ASSIGN_OR_RETURN(Inferred inferred, Infer(op, key_dtype, srcs, arg));
  if (SpecLevel() >= 2) RETURN_IF_ERROR(VerifyNewNode(op, key_dtype, srcs, arg));
  const auto [vmin, vmax] = InferBounds(op, inferred.dtype, srcs, arg);
  Node* n = NewNode(key, std::move(arg));
  n->dtype = inferred.dtype;
  n->shape = std::move(inferred.shape);
  n->device = inferred.device;
  n->vmin = vmin;
  n->vmax = vmax;
  n->site.store(CurrentCallSite(), std::memory_order_relaxed);
  const NodeKey own{n->op, n->dtype, {n->srcs(), n->num_srcs}, n->arg, n->hash};
  return NodeTable::Get().Insert(own, n);
}

absl::StatusOr<UOp> UOp::TryMake(Op op, absl::Span<const UOp> srcs, Arg arg) {
  return TryMake(op, kVoid, srcs, std::move(arg));
}
absl::StatusOr<UOp> UOp::TryMake(Op op, absl::Span<const UOp> srcs) {
  return TryMake(op, kVoid, srcs, Arg());
}
UOp UOp::Make(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg) {
  absl::StatusOr<UOp> made = TryMake(op, dtype, srcs, std::move(arg));
  CHECK(made.ok(), made.status().message());
  return *std::move(made);
}
UOp UOp::Make(Op op, DType dtype, absl::Span<const UOp> srcs) {
  return Make(op, dtype, srcs, Arg());
}
UOp UOp::Make(Op op, absl::Span<const UOp> srcs, Arg arg) {
  return Make(op, kVoid, srcs, std::move(arg));
}
UOp UOp::Make(Op op, absl::Span<const UOp> srcs) { return Make(op, kVoid, srcs, Arg()); }

UOp UOp::Const(DType dtype, Scalar value) { return Make(Op::kConst, dtype, {}, value); }
UOp UOp::Const(DType dtype, int64_t value) {
  return Const(dtype, Convert(Scalar::Int(value), kInt64, dtype.Scalar()));
}
UOp UOp::Const(DType dtype, double value) {
  return Const(dtype, Convert(Scalar::Float(value), kFloat64, dtype.Scalar()));
}

bool UOp::IsConst(int64_t value) const {
  return IsConst() && !dtype().IsFloat() && arg<Scalar>().AsInt() == value;
}

UOp UOp::WithSrcs(absl::Span<const UOp> srcs) const {
  if (srcs == this->srcs()) return *this;
  UOp made = Make(op(), dtype(), srcs, arg());
  if (const std::string* why = node_->note.load()) made.node_->note.store(why);
  // What is rebuilt is still what the user wrote there.
  if (const CallSite* site = call_site()) made.node_->site.store(site, std::memory_order_relaxed);
  return made;
}

UOp UOp::Unshared() const {
  Node* n = NewNode({op(), dtype(), srcs(), arg(), node_->hash}, arg());
  n->shape = shape();
  n->device = device();
  n->vmin = vmin();
  n->vmax = vmax();
  const UOp made(n);
  made.SetMarks(*this);
  return made;
}

UOp UOp::realized() const {
  Node* r = node_->realized.load(std::memory_order_acquire);
  if (r == nullptr) return UOp();
  r->refs.fetch_add(1, std::memory_order_relaxed);
  return UOp(r);
}

void UOp::SetRealized(const UOp& buffer) const {
  UOp held = buffer;
  Node* none = nullptr;
  // The first stays while the node lives: a thread that has just read it may not hold it yet.
  if (node_->realized.compare_exchange_strong(none, held.node_, std::memory_order_acq_rel)) {
    held.node_ = nullptr;
  }
}

namespace {
const std::string* InternNote(const std::string& text) {
  static std::mutex& mutex = *new std::mutex;
  static auto& table = *new absl::node_hash_set<std::string>;
  std::lock_guard lock(mutex);
  return &*table.insert(text).first;
}
}  // namespace

const std::string& UOp::note() const {
  static const std::string& none = *new std::string;
  const std::string* text = node_->note.load(std::memory_order_acquire);
  return text == nullptr ? none : *text;
}

void UOp::SetNote(const std::string& why) const {
  node_->note.store(InternNote(why), std::memory_order_release);
}

void UOp::SetMarks(const UOp& from) const {
  if (const CallSite* site = from.call_site()) node_->site.store(site, std::memory_order_relaxed);
  if (const std::string* why = from.node_->note.load()) node_->note.store(why);
}

Arg::Arg(const Arg&) = default;
Arg::Arg(Arg&&) noexcept = default;
Arg& Arg::operator=(const Arg&) = default;
Arg& Arg::operator=(Arg&&) noexcept = default;
Arg::~Arg() = default;
bool operator==(const Arg& a, const Arg& b) { return a.value == b.value; }

bool operator==(const ExchangeArg& a, const ExchangeArg& b) {
  const auto same = [](const auto& x, const auto& y) { return x == y || *x == *y; };
  return same(a.from, b.from) && same(a.to, b.to) && a.shape == b.shape && a.op == b.op &&
         a.over == b.over;
}

int64_t LiveNodes() { return live_nodes.load(); }

std::vector<UOp> TopoSort(absl::Span<const UOp> roots, bool with_extents) {
  std::vector<UOp> order;
  const auto add = [&order](const UOp& u) {
    order.push_back(u);
    return false;
  };
  FindBelow(roots, add, with_extents);
  return order;
}

// ---- extents and shapes

Extent::Extent(const UOp& expr) {
  if (expr.IsConst()) {
    value_ = expr.arg<Scalar>().AsInt();
  } else {
    expr_ = expr;
  }
}

int64_t Extent::value() const {
  CHECK(is_int(), "extent ", ToString(), " is symbolic");
  return value_;
}
int64_t Extent::min() const { return is_int() ? value_ : expr_.vmin(); }
int64_t Extent::max() const { return is_int() ? value_ : expr_.vmax(); }
UOp Extent::ToUOp() const { return is_int() ? UOp::Index(value_) : expr_; }

namespace {
// What each place has of an axis: "{3|2|2}".
std::string SizesToString(const OwnSizes& own) {
  return absl::StrCat("{", absl::StrJoin(own.sizes, "|"), "}");
}

// A small infix printer for extents; they are shallow, but a deep one is cut rather than recursed.
std::string ExprToString(const UOp& u, int depth) {
  if (depth > 16) return "...";
  if (u.IsConst()) return absl::StrCat(u.arg<Scalar>().AsInt());
  if (const std::optional<OwnSizes> own = OwnSizesOf(u)) return SizesToString(*own);
  if (u.is(Op::kVar)) return u.arg<VarArg>().name;
  const char* infix = u.is(Op::kAdd)        ? "+"
                      : u.is(Op::kSub)      ? "-"
                      : u.is(Op::kMul)      ? "*"
                      : u.is(Op::kFloorDiv) ? "//"
                      : u.is(Op::kFloorMod) ? "%"
                                            : nullptr;
  if (infix != nullptr && u.size() == 2) {
    return absl::StrCat("(", ExprToString(u.src(0), depth + 1), infix,
                        ExprToString(u.src(1), depth + 1), ")");
  }
  return absl::StrCat(Info(u.op()).text, "(",
                      absl::StrJoin(u.srcs(), ",",
                                    [depth](std::string* out, const UOp& s) {
                                      absl::StrAppend(out, ExprToString(s, depth + 1));
                                    }),
                      ")");
}

Extent Fold(Op op, const Extent& a, const Extent& b) {
  if (op == Op::kAdd || op == Op::kSub) {
    if (std::optional<Extent> sum = SimplifiedSum(op, a, b)) return *std::move(sum);
  }
  return Extent(Simplify(UOp::Make(op, {a.ToUOp(), b.ToUOp()})));
}
}  // namespace

std::string Extent::ToString() const {
  if (is_int()) return absl::StrCat(value_);
  const std::optional<OwnSizes> own = OwnSizesOf(*this);
  return own ? SizesToString(*own) : ExprToString(expr_, 0);
}

bool Shape::is_static() const {
  return std::all_of(begin(), end(), [](const Extent& e) { return e.is_int(); });
}

int64_t Shape::MaxElements() const {
  int64_t n = 1;
  bool overflow = false;
  for (const Extent& e : dims()) {
    if (e.max() == 0) return 0;
    overflow |= __builtin_mul_overflow(n, e.max(), &n);
    if (overflow) n = std::numeric_limits<int64_t>::max();
  }
  return n;
}

Extent Shape::Elements() const {
  // Integers first: they multiply without an expression.
  Extent n = 1;
  for (const Extent& e : dims()) {
    if (e.is_int()) n = n * e;
  }
  for (const Extent& e : dims()) {
    if (!e.is_int()) n = n * e;
  }
  return n;
}

std::string Shape::ToString() const {
  return absl::StrCat(
      "[",
      absl::StrJoin(dims(), ", ",
                    [](std::string* out, const Extent& e) { absl::StrAppend(out, e.ToString()); }),
      "]");
}

namespace {
// What is too large for an integer: larger than any tensor.
int64_t Saturated(bool positive) {
  return positive ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}
}  // namespace

Extent operator+(const Extent& a, const Extent& b) {
  int64_t v;
  if (a.is_int() && b.is_int()) {
    return __builtin_add_overflow(a.value(), b.value(), &v) ? Saturated(a.value() > 0) : v;
  }
  if (a.is_int(0)) return b;
  if (b.is_int(0)) return a;
  return Fold(Op::kAdd, a, b);
}
Extent operator-(const Extent& a, const Extent& b) {
  int64_t v;
  if (a.is_int() && b.is_int()) {
    return __builtin_sub_overflow(a.value(), b.value(), &v) ? Saturated(a.value() > 0) : v;
  }
  if (b.is_int(0)) return a;
  if (a == b) return 0;
  return Fold(Op::kSub, a, b);
}
Extent operator*(const Extent& a, const Extent& b) {
  int64_t v;
  if (a.is_int() && b.is_int()) {
    const bool positive = (a.value() > 0) == (b.value() > 0);
    return __builtin_mul_overflow(a.value(), b.value(), &v) ? Saturated(positive) : v;
  }
  if (a.is_int(0) || b.is_int(0)) return 0;
  if (a.is_int(1)) return b;
  if (b.is_int(1)) return a;
  return Fold(Op::kMul, a, b);
}
Extent FloorDiv(const Extent& a, int64_t b) {
  if (b == 1) return a;
  if (a.is_int()) return a.value() / b - (a.value() % b < 0);
  return Fold(Op::kFloorDiv, a, b);
}
Extent Max(const Extent& a, const Extent& b) {
  if (a.min() >= b.max()) return a;
  if (b.min() >= a.max()) return b;
  return Fold(Op::kMax, a, b);
}
Extent Min(const Extent& a, const Extent& b) {
  if (a.max() <= b.min()) return a;
  if (b.max() <= a.min()) return b;
  return Fold(Op::kMin, a, b);
}

}  // namespace tessera
