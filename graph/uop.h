// The one node type of every graph: UOp, a handle to an immutable, interned node.
//
// Equal nodes (op, dtype, sources, argument) are one node, so comparing handles compares graphs;
// but each assignment to a Tensor is a node of its own. Shape, device and integer bounds are
// derived once, when a node is made. Nodes are counted by their handles; making and dropping them
// is safe from any thread and never recurses.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/device.h"
#include "graph/dtype.h"
#include "graph/ops.h"

namespace tessera {

struct Node;
struct CallSite;
struct Buffer;  // graph/buffer.h
struct Boxes;   // graph/box.h
class Shape;
struct Arg;

class UOp {
 public:
  UOp() = default;
  UOp(const UOp& other) : node_(other.node_) { Ref(); }
  UOp(UOp&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  UOp& operator=(UOp other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~UOp() { Unref(); }

  // The node with these parts. A mistake a user can make (shapes that do not fit, a dtype the op
  // does not take) comes back as a status from TryMake and is a bug in Make. The dtype is needed
  // only for ops whose type rule is kDeclared.
  static absl::StatusOr<UOp> TryMake(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);
  static absl::StatusOr<UOp> TryMake(Op op, absl::Span<const UOp> srcs, Arg arg);
  static absl::StatusOr<UOp> TryMake(Op op, absl::Span<const UOp> srcs);
  static UOp Make(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);
  static UOp Make(Op op, DType dtype, absl::Span<const UOp> srcs);
  static UOp Make(Op op, absl::Span<const UOp> srcs, Arg arg);
  static UOp Make(Op op, absl::Span<const UOp> srcs);
  static UOp Const(DType dtype, Scalar value);
  static UOp Const(DType dtype, int64_t value);  // converted to the dtype
  static UOp Const(DType dtype, double value);
  static UOp Index(int64_t value) { return Const(kInt64, value); }  // an i64 constant

  explicit operator bool() const { return node_ != nullptr; }
  const Node* get() const { return node_; }
  Op op() const;
  bool is(Op o) const { return op() == o; }
  DType dtype() const;
  const Arg& arg() const;
  template <typename T>
  const T& arg() const;
  int size() const;  // number of sources
  const UOp& src(int i) const;
  absl::Span<const UOp> srcs() const;
  const Shape& shape() const;
  int rank() const;
  Device device() const;
  // Bounds of an integer or bool node's elements, inclusive; the dtype's limits where unknown.
  int64_t vmin() const;
  int64_t vmax() const;
  bool IsConst() const { return op() == Op::kConst; }
  bool IsConst(int64_t value) const;  // an integer constant of this value
  // The same node over other sources.
  UOp WithSrcs(absl::Span<const UOp> srcs) const;
  // An equal node that no Make gives to anyone else, for what each user who writes it means anew.
  UOp Unshared() const;

  // What a realised node was computed into: a BUFFER node, or nothing.
  UOp realized() const;
  void SetRealized(const UOp& buffer) const;
  // Why a builder put the node there, where it was no user; empty if a user did.
  const std::string& note() const;
  void SetNote(const std::string& why) const;
  // Call site and note of another node, for one that is made in its place.
  void SetMarks(const UOp& from) const;
  // Where the user's call that made the node, or what it stands for, was written; null if unknown.
  const CallSite* call_site() const;

  friend bool operator==(const UOp& a, const UOp& b) { return a.node_ == b.node_; }
  template <typename H>
  friend H AbslHashValue(H h, const UOp& u) {
    return H::combine(std::move(h), u.node_);
  }

 private:
  friend class NodeTable;
  explicit UOp(Node* adopted) : node_(adopted) {}
  void Ref() const;
  void Unref();
  static void Drop(Node* node);  // whose last handle is gone
  Node* node_ = nullptr;
};

// An extent of a shape: an integer, or an i64 expression over VARs.
class Extent {
 public:
  Extent() {}
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Extent(T value) : value_(static_cast<int64_t>(value)) {}
  explicit Extent(const UOp& expr);  // a constant becomes its integer
  bool is_int() const { return !expr_; }
  bool is_int(int64_t v) const { return !expr_ && value_ == v; }
  int64_t value() const;  // of an integer extent
  const UOp& expr() const { return expr_; }
  int64_t min() const;
  int64_t max() const;
  UOp ToUOp() const;  // a constant or the expression, i64
  std::string ToString() const;

  friend bool operator==(const Extent& a, const Extent& b) {
    return a.value_ == b.value_ && a.expr_ == b.expr_;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Extent& e) {
    return H::combine(std::move(h), e.value_, e.expr_.get());
  }

 private:
  int64_t value_ = 0;
  UOp expr_;
};

using Extents = absl::InlinedVector<Extent, 4>;
using Ints = absl::InlinedVector<int64_t, 4>;
using Pairs = absl::InlinedVector<std::pair<Extent, Extent>, 2>;

// The extents of a tensor, shared between the nodes that have them. Rank 0 is a scalar.
class Shape {
 public:
  Shape() = default;
  explicit Shape(Extents dims)
      : dims_(dims.empty() ? nullptr : std::make_shared<const Extents>(std::move(dims))) {}
  Shape(std::initializer_list<Extent> dims) : Shape(Extents(dims)) {}

  int rank() const { return dims_ ? static_cast<int>(dims_->size()) : 0; }
  absl::Span<const Extent> dims() const {
    return dims_ ? absl::Span<const Extent>(*dims_) : absl::Span<const Extent>();
  }
  const Extent& operator[](int i) const { return (*dims_)[i]; }
  auto begin() const { return dims().begin(); }
  auto end() const { return dims().end(); }
  bool is_static() const;
  int64_t MaxElements() const;  // with every variable at its highest; saturates
  Extent Elements() const;
  Extents ToExtents() const { return Extents(dims().begin(), dims().end()); }
  std::string ToString() const;  // "[4, n+1]"

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.dims_ == b.dims_ || (a.rank() == b.rank() && a.dims() == b.dims());
  }

 private:
  std::shared_ptr<const Extents> dims_;
};

// Extent arithmetic, folded where both sides are integers.
Extent operator+(const Extent& a, const Extent& b);
Extent operator-(const Extent& a, const Extent& b);
Extent operator*(const Extent& a, const Extent& b);
Extent FloorDiv(const Extent& a, int64_t b);  // b is positive
Extent Max(const Extent& a, const Extent& b);
Extent Min(const Extent& a, const Extent& b);

// ---- arguments

struct VarArg {
  std::string name;
  int64_t min = 0, max = 0;
  friend bool operator==(const VarArg&, const VarArg&) = default;
};
struct BufferArg {
  std::shared_ptr<Buffer> buffer;  // identity is the buffer's
  Extents shape;
  Device device;
  friend bool operator==(const BufferArg& a, const BufferArg& b) {
    return a.buffer == b.buffer && a.shape == b.shape && a.device == b.device;
  }
};
struct ParamArg {
  int64_t slot = 0;
  Extents shape;
  Device device;
  friend bool operator==(const ParamArg&, const ParamArg&) = default;
};
// One entry a windowed axis: position p of the result reads p*stride + w*dilation, w < size.
struct WindowArg {
  Ints axes, size, stride, dilation;
  friend bool operator==(const WindowArg&, const WindowArg&) = default;
};
struct ReduceArg {
  Op op = Op::kAdd;  // kAdd, kMul, kMax, kMin, kAnd, kOr, kXor; of SCATTER and UPDATE also kAssign
  Ints axes;         // of a tensor; empty in kernels; (axis, leading, trailing) of SCATTER
  friend bool operator==(const ReduceArg&, const ReduceArg&) = default;
};
enum class RangeKind : uint8_t {
  kLoop,    // one iteration after another
  kGrid,    // divided over cores, or blocks
  kUnroll,  // a copy of the body for each value, of constant extent
  kVector,  // lanes of one vector, of constant extent
  kThread,  // points run at once by the threads of a block, those of a row
  kRow,     // the same, by its rows of threads
  kMatrix,  // steps of a sum of products that a matrix unit takes as one, of constant extent
};
struct RangeArg {
  int64_t id = 0;
  RangeKind kind = RangeKind::kLoop;
  friend bool operator==(const RangeArg&, const RangeArg&) = default;
};
enum class Space : uint8_t { kGlobal, kShared, kRegister };
struct StageArg {
  int64_t id = 0;
  Space space = Space::kShared;
  int64_t ahead = 0;  // steps of the innermost loop around by which it is filled before it is read
  friend bool operator==(const StageArg&, const StageArg&) = default;
};

// Parts that lie in the boxes `from` of an index space become parts that lie in the boxes `to`, of
// which `shape` is one place's. Where `over` names mesh dims, the parts of places that differ in
// them are combined by `op`: each place gets its box of the result.
struct ExchangeArg {
  std::shared_ptr<const Boxes> from, to;
  Extents shape;
  Op op = Op::kAdd;
  Ints over = {};
  friend bool operator==(const ExchangeArg& a, const ExchangeArg& b);
};

// The argument of a node; which alternative an op takes is its ArgKind in the op table.
struct Arg {
  using Value = std::variant<std::monostate, Scalar, VarArg, BufferArg, ParamArg, Extents, Ints,
                             Pairs, WindowArg, ReduceArg, int64_t, Device, RangeArg, StageArg,
                             std::string, ExchangeArg>;
  Value value;
  Arg() = default;
  template <typename T>
  requires std::is_constructible_v<Value, T> &&(!std::is_same_v<std::decay_t<T>, Arg>)Arg(T&& v)
      : value(std::forward<T>(v)) {}
  // Not inline: a tenth of the time that most files take to compile.
  Arg(const Arg&);
  Arg(Arg&&) noexcept;
  Arg& operator=(const Arg&);
  Arg& operator=(Arg&&) noexcept;
  ~Arg();
  friend bool operator==(const Arg& a, const Arg& b);
};

// ---- the node itself; passes use the accessors of UOp

struct Node {
  mutable std::atomic<int32_t> refs{1};
  Op op;
  DType dtype;
  uint32_t num_srcs = 0;
  size_t hash = 0;
  Arg arg;
  Shape shape;
  Device device;
  int64_t vmin = 0, vmax = 0;
  mutable std::atomic<const CallSite*> site{nullptr};
  mutable std::atomic<const std::string*> note{nullptr};
  mutable std::atomic<Node*> realized{nullptr};
  mutable std::atomic<bool> simplest{false};  // Simplify leaves it as it is
  Node* next_dead = nullptr;
  const UOp* srcs() const { return reinterpret_cast<const UOp*>(this + 1); }
};

inline Op UOp::op() const { return node_->op; }
inline DType UOp::dtype() const { return node_->dtype; }
inline const Arg& UOp::arg() const { return node_->arg; }
template <typename T>
const T& UOp::arg() const {
  return std::get<T>(node_->arg.value);
}
inline int UOp::size() const { return static_cast<int>(node_->num_srcs); }
inline const UOp& UOp::src(int i) const { return node_->srcs()[i]; }
inline absl::Span<const UOp> UOp::srcs() const { return {node_->srcs(), node_->num_srcs}; }
inline const Shape& UOp::shape() const { return node_->shape; }
inline int UOp::rank() const { return node_->shape.rank(); }
inline Device UOp::device() const { return node_->device; }
inline int64_t UOp::vmin() const { return node_->vmin; }
inline int64_t UOp::vmax() const { return node_->vmax; }
inline const CallSite* UOp::call_site() const {
  return node_->site.load(std::memory_order_relaxed);
}
inline void UOp::Ref() const {
  if (node_) node_->refs.fetch_add(1, std::memory_order_relaxed);
}

inline void UOp::Unref() {
  if (node_ && node_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) Drop(node_);
}

// Number of nodes alive in the process.
int64_t LiveNodes();

// Every node reachable from the roots, sources before their users; extents' expressions count as
// sources of the nodes whose arguments hold them only if `with_extents`.
std::vector<UOp> TopoSort(absl::Span<const UOp> roots, bool with_extents = false);

// Calls fn for every UOp held in the argument (extents of shapes).
template <typename Fn>
void ForEachArgUOp(const Arg& arg, Fn fn) {
  const auto visit = [&fn](const Extent& e) {
    if (!e.is_int()) fn(e.expr());
  };
  if (auto* e = std::get_if<Extents>(&arg.value)) {
    for (const Extent& x : *e) visit(x);
  } else if (auto* p = std::get_if<Pairs>(&arg.value)) {
    for (const auto& [a, b] : *p) visit(a), visit(b);
  } else if (auto* b = std::get_if<BufferArg>(&arg.value)) {
    for (const Extent& x : b->shape) visit(x);
  } else if (auto* q = std::get_if<ParamArg>(&arg.value)) {
    for (const Extent& x : q->shape) visit(x);
  } else if (auto* x = std::get_if<ExchangeArg>(&arg.value)) {
    for (const Extent& e : x->shape) visit(e);
  }
}

}  // namespace tessera
