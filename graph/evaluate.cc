// The reference evaluator.
#include "graph/evaluate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/evaluate_values.h"
#include "graph/fold.h"
#include "graph/infer.h"
#include "graph/loop_form.h"
#include "graph/status.h"
#include "graph/unmap.h"

namespace tessera {
namespace {

// The elements of a box, in order.
int64_t FirstOf(const Box& box, const Ints& strides) {
  int64_t base = 0;
  for (size_t a = 0; a < box.size(); ++a) base += box[a].begin * strides[a];
  return base;
}
Ints DimsOf(const Box& box) {
  Ints dims;
  for (const Interval& i : box) dims.push_back(i.size());
  return dims;
}

// Computes the nodes that the roots need, sources first, and drops a value after its last use.
class Evaluator {
 public:
  // In the body of a loop `items` has the values of ITEMs by number.
  explicit Evaluator(const EvaluateOptions& options, const std::vector<Value>* items = nullptr)
      : options_(options), items_(items) {}

  absl::StatusOr<std::vector<HostArray>> Run(absl::Span<const UOp> roots) {
    ASSIGN_OR_RETURN(const std::vector<Value> values, ValuesOf(roots));
    std::vector<HostArray> out;
    for (size_t i = 0; i < roots.size(); ++i) {
      const DType dtype = roots[i].dtype();
      const Value& v = values[i];
      HostArray host{dtype, {v.dims.begin(), v.dims.end()}, {}};
      const int width = dtype.bytes();
      host.bytes.resize(v.data->size() * width);
      for (size_t k = 0; k < v.data->size(); ++k) {
        StoreScalar(&host.bytes[k * width], dtype, (*v.data)[k]);
      }
      out.push_back(std::move(host));
    }
    return out;
  }

  absl::StatusOr<std::vector<Value>> ValuesOf(absl::Span<const UOp> roots) {
    const std::vector<UOp> order = TopoSort(roots, /*with_extents=*/true);
    for (const UOp& r : roots) ++uses_[r.get()];
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (uses_.contains(it->get()) && !IsRealized(*it)) {
        ForEachUse(*it, [this](const UOp& s) { ++uses_[s.get()]; });
      }
    }
    for (const UOp& u : order) {
      if (!uses_.contains(u.get())) continue;
      if (u.is(Op::kLoop)) {
        ASSIGN_OR_RETURN(looped_[u.get()], Looped(u));
      } else {
        ASSIGN_OR_RETURN(values_[u.get()], Compute(u));
      }
      if (!IsRealized(u)) {
        ForEachUse(u, [this](const UOp& s) {
          if (--uses_[s.get()] > 0) return;
          values_.erase(s.get());
          looped_.erase(s.get());
        });
      }
    }
    std::vector<Value> out;
    for (const UOp& r : roots) out.push_back(values_.at(r.get()));
    return out;
  }

 private:
  // Assigning to the whole of a base does not need what it held.
  static bool IsOverwrite(const UOp& u) { return u.is(Op::kAssign) && u.src(0) == u.src(1); }

  template <typename Fn>
  static void ForEachUse(const UOp& u, Fn fn) {
    if (u.is(Op::kAssign)) {  // the view is followed, not computed
      if (!IsOverwrite(u)) fn(u.src(0));
      for (UOp v = u.src(1); !(v == u.src(0)) && IsMovement(v.op()); v = v.src(0)) {
        ForEachArgUOp(v.arg(), fn);
      }
      return fn(u.src(2));
    }
    // The body of a loop is computed for each turn.
    for (const UOp& s : u.srcs().subspan(u.is(Op::kLoop) ? 1 : 0)) fn(s);
    ForEachArgUOp(u.arg(), fn);
  }

  // All that a loop leaves.
  absl::StatusOr<std::vector<Value>> Looped(const UOp& u) {
    const LoopForm loop(u);
    const int64_t turns = Of(loop.turns).data->front().AsInt();
    std::vector<Value> items;
    for (const UOp& s : u.srcs().subspan(2)) items.push_back(Of(s));
    const size_t carried = loop.carried.size(), first_fixed = carried + loop.sequences.size();
    std::vector<Value> out(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(carried));
    std::vector<std::vector<Scalar>> stacked(loop.num_results());
    std::vector<Ints> dims(loop.num_results());
    const auto stack = [&](int result, int64_t at, const Value& v) {
      std::vector<Scalar>& all = stacked[result];
      dims[result] = v.dims;
      all.resize(turns * v.data->size());
      std::copy(v.data->begin(), v.data->end(),
                all.begin() + static_cast<std::ptrdiff_t>(at * v.data->size()));
    };
    for (int64_t t = 0; t < turns; ++t) {
      const int64_t at = loop.backwards ? turns - 1 - t : t;
      for (size_t i = 0; i < carried; ++i) items[i] = out[i];
      for (size_t i = carried; i < first_fixed; ++i) {
        const Value& all = Of(loop.SourceOf(static_cast<int64_t>(i)));
        Ints rest(all.dims.begin() + 1, all.dims.end());
        ASSIGN_OR_RETURN(const int64_t n, Count(rest));
        const auto begin = all.data->begin() + static_cast<std::ptrdiff_t>(at * n);
        items[i] = MakeValue(std::move(rest), std::vector<Scalar>(begin, begin + n));
      }
      ASSIGN_OR_RETURN(const std::vector<Value> given,
                       Evaluator(options_, &items).ValuesOf(loop.body.srcs()));
      for (size_t i = 0; i < carried; ++i) {
        stack(loop.Taken(static_cast<int>(i)), at, out[i]);
        out[i] = given[i];
      }
      for (size_t i = carried; i < given.size(); ++i) stack(static_cast<int>(i), at, given[i]);
    }
    for (int i = static_cast<int>(carried); i < loop.num_results(); ++i) {
      Ints shape = dims[i];
      if (turns == 0) {
        const Shape all = loop.ShapeOfResult(i);
        for (const Extent& e : all.dims().subspan(1)) {
          const UOp extent = e.ToUOp();
          ASSIGN_OR_RETURN(const std::vector<Value> n, Evaluator(options_).ValuesOf({&extent, 1}));
          shape.push_back(n[0].data->front().AsInt());
        }
      }
      shape.insert(shape.begin(), turns);
      out.push_back(MakeValue(std::move(shape), std::move(stacked[i])));
    }
    return out;
  }

  static const uint8_t* StorageOf(const UOp& buffer) {
    const auto& arg = buffer.arg<BufferArg>();
    const Device d = arg.device;
    const bool on_host = !d || (!d.is_sharding() && d.place().kind() == "CPU");
    if (!on_host || arg.buffer->storage == nullptr) return nullptr;
    return static_cast<const uint8_t*>(arg.buffer->storage->data);
  }

  static bool HasParts(const UOp& buffer) {
    const auto& arg = buffer.arg<BufferArg>();
    return arg.buffer->storage != nullptr && !arg.buffer->storage->parts.empty() &&
           arg.device.places()[0].kind() == "CPU";
  }

  bool IsRealized(const UOp& u) const {
    if (!options_.stop_at_realized) return false;
    const UOp buffer = u.realized();
    return buffer && buffer.is(Op::kBuffer) && (StorageOf(buffer) != nullptr || HasParts(buffer));
  }

  const Value& Of(const UOp& u) const { return values_.at(u.get()); }
  int64_t IntOf(const Extent& e) const {
    return e.is_int() ? e.value() : Of(e.expr()).data->front().AsInt();
  }
  Ints IntsOf(absl::Span<const Extent> extents) const {
    Ints out;
    for (const Extent& e : extents) out.push_back(IntOf(e));
    return out;
  }

  static absl::Status Fail(const UOp& u, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("Evaluate: ", Info(u.op()).text, " ", Describe(u), " ", what));
  }

  absl::StatusOr<Value> FromBytes(const UOp& u, const uint8_t* bytes, Ints dims) {
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    std::vector<Scalar> data(n);
    for (int64_t i = 0; i < n; ++i) data[i] = LoadScalar(bytes + i * u.dtype().bytes(), u.dtype());
    return MakeValue(std::move(dims), std::move(data));
  }

  absl::StatusOr<Value> Leaf(const UOp& u) {
    if (u.is(Op::kConst)) return MakeValue({}, {u.arg<Scalar>()});
    if (u.is(Op::kVar)) {
      const auto& var = u.arg<VarArg>();
      auto it = options_.vars.find(var.name);
      if (it == options_.vars.end()) return Fail(u, absl::StrCat(var.name, " has no value"));
      if (it->second < var.min || it->second > var.max) {
        return Fail(
            u, absl::StrCat(var.name, " = ", it->second, " lies outside ", var.min, "..", var.max));
      }
      return MakeValue({}, {Scalar::Int(it->second)});
    }
    if (u.is(Op::kIota)) {
      Ints dims = IntsOf(u.arg<Extents>());
      ASSIGN_OR_RETURN(const int64_t n, Count(dims));
      std::vector<Scalar> data(n);
      for (int64_t i = 0; i < n; ++i) data[i] = Convert(Scalar::Int(i), kInt64, u.dtype());
      return MakeValue(std::move(dims), std::move(data));
    }
    if (u.is(Op::kItem)) {
      const auto number = static_cast<size_t>(NumberOfItem(u));
      if (items_ == nullptr || number >= items_->size()) return Fail(u, "is of no loop");
      return (*items_)[number];
    }
    const bool is_buffer = u.is(Op::kBuffer);
    Ints dims = IntsOf(is_buffer ? u.arg<BufferArg>().shape : u.arg<ParamArg>().shape);
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    if (n == 0) return MakeValue(std::move(dims), {});
    const uint8_t* bytes = options_.contents ? options_.contents(u) : nullptr;
    if (bytes == nullptr && is_buffer) bytes = StorageOf(u);
    if (bytes == nullptr && is_buffer && HasParts(u)) {
      ASSIGN_OR_RETURN(const std::vector<uint8_t> joined,
                       Joined(u, *u.arg<BufferArg>().buffer->storage));
      return FromBytes(u, joined.data(), std::move(dims));
    }
    if (bytes == nullptr) return Fail(u, "was never given data");
    return FromBytes(u, bytes, std::move(dims));
  }

  absl::StatusOr<Value> Elementwise(const UOp& u) {
    Ints dims;
    std::vector<ScalarSource> srcs;
    for (const UOp& s : u.srcs()) {
      const Value& v = Of(s);
      if (s.rank() > 0) dims = v.dims;
      srcs.push_back({v.data->data(), s.rank() > 0});
    }
    for (const UOp& s : u.srcs()) {
      if (s.rank() > 0 && Of(s).dims != dims) return Fail(u, "has sources that differ in shape");
    }
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    std::vector<Scalar> out(n);
    const DType operand = u.src(u.is(Op::kWhere) ? 1 : 0).dtype();
    EvaluateElementwise(u.op(), u.dtype(), operand, srcs, absl::MakeSpan(out));
    return MakeValue(std::move(dims), std::move(out));
  }

  absl::StatusOr<Value> PadOrShrink(const UOp& u, const Value& v) {
    const auto& pairs = u.arg<Pairs>();
    Ints dims = v.dims;
    int64_t base = 0;
    const bool pad = u.is(Op::kPad);
    Ints first;
    for (size_t i = 0; i < dims.size(); ++i) {
      const int64_t a = IntOf(pairs[i].first), b = IntOf(pairs[i].second);
      if (a < 0 || (pad ? b < 0 : b < a || b > v.dims[i])) return Fail(u, "is out of bounds");
      dims[i] = pad ? a + v.dims[i] + b : b - a;
      first.push_back(a);
    }
    const Ints strides = RowMajor(pad ? dims : v.dims);
    for (size_t i = 0; i < dims.size(); ++i) base += first[i] * strides[i];
    if (!pad) return Strided(v, std::move(dims), strides, base);
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    std::vector<Scalar> out(n);
    int64_t next = 0;
    Walk(v.dims, strides, base, [&](int64_t offset) { out[offset] = (*v.data)[next++]; });
    return MakeValue(std::move(dims), std::move(out));
  }

  // One movement op applied to a value, which need not be its source's (see Assign).
  absl::StatusOr<Value> Move(const UOp& u, const Value& v) {
    Ints dims = v.dims;
    Ints strides = RowMajor(dims);
    int64_t base = 0;
    if (u.is(Op::kReshape)) {
      dims = IntsOf(u.arg<Extents>());
      ASSIGN_OR_RETURN(const int64_t n, Count(dims));
      if (n != static_cast<int64_t>(v.data->size())) return Fail(u, "has another element count");
      return Value{std::move(dims), v.data};
    } else if (u.is(Op::kPermute)) {
      const auto& order = u.arg<Ints>();
      const Ints own = strides;
      for (size_t i = 0; i < dims.size(); ++i) {
        dims[i] = v.dims[order[i]];
        strides[i] = own[order[i]];
      }
    } else if (u.is(Op::kExpand)) {
      dims = IntsOf(u.arg<Extents>());
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] == v.dims[i]) continue;
        if (v.dims[i] != 1) return Fail(u, "expands an axis that is not 1");
        strides[i] = 0;
      }
    } else if (u.is(Op::kFlip)) {
      for (int64_t axis : u.arg<Ints>()) {
        base += (dims[axis] - 1) * strides[axis];
        strides[axis] = -strides[axis];
      }
    } else if (u.is(Op::kWindow)) {
      const auto& w = u.arg<WindowArg>();
      for (size_t i = 0; i < w.axes.size(); ++i) {
        int64_t& d = dims[w.axes[i]];
        d = (d - w.dilation[i] * (w.size[i] - 1) - 1) / w.stride[i] + 1;
        dims.push_back(w.size[i]);
        strides.push_back(strides[w.axes[i]] * w.dilation[i]);
        strides[w.axes[i]] *= w.stride[i];
      }
    } else {
      return PadOrShrink(u, v);
    }
    return Strided(v, std::move(dims), strides, base);
  }

  absl::StatusOr<Value> Stack(const UOp& u) {
    const Ints dims = IntsOf(u.shape().dims());
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    const Boxes boxes = BoxesOf(u.shape(), u.device());
    const Ints strides = RowMajor(dims);
    std::vector<Scalar> out(n);
    for (int i = 0; i < u.size(); ++i) {
      const Box box = boxes.At(i);
      int64_t next = 0;
      const Value& part = Of(u.src(i));
      Walk(DimsOf(box), strides, FirstOf(box, strides),
           [&](int64_t offset) { out[offset] = (*part.data)[next++]; });
    }
    return MakeValue(dims, std::move(out));
  }

  absl::StatusOr<Value> Selected(const UOp& u) {
    const Value& v = Of(u.src(0));
    const Ints strides = RowMajor(v.dims);
    Box box = BoxesOf(u.src(0).shape(), u.src(0).device()).At(static_cast<int>(u.arg<int64_t>()));
    for (size_t a = 0; a < box.size(); ++a) box[a] = Intersect(box[a], {0, v.dims[a]});
    return Strided(v, DimsOf(box), strides, FirstOf(box, strides));
  }

  // The bytes of a tensor whose parts lie on several places of the host; of none that has no parts.
  absl::StatusOr<std::vector<uint8_t>> Joined(const UOp& u, const Storage& storage) {
    const Boxes boxes = BoxesOf(u.shape(), u.device());
    const Ints strides = RowMajor(IntsOf(u.shape().dims()));
    const int64_t width = u.dtype().bytes();
    std::vector<uint8_t> out(u.shape().MaxElements() * width);
    for (size_t i = 0; i < storage.parts.size(); ++i) {
      const Box box = boxes.At(static_cast<int>(i));
      const auto* part = static_cast<const uint8_t*>(storage.parts[i]->data);
      Walk(DimsOf(box), strides, FirstOf(box, strides), [&](int64_t offset) {
        std::copy(part, part + width, &out[offset * width]);
        part += width;
      });
    }
    return out;
  }

  absl::StatusOr<Value> Cat(const UOp& u) {
    const auto axis = static_cast<size_t>(u.arg<int64_t>());
    Ints dims = Of(u.src(0)).dims;
    dims[axis] = 0;
    for (const UOp& s : u.srcs()) dims[axis] += Of(s).dims[axis];
    ASSIGN_OR_RETURN(const int64_t n, Count(dims));
    const Ints strides = RowMajor(dims);
    std::vector<Scalar> out(n);
    int64_t base = 0;
    for (const UOp& s : u.srcs()) {
      const Value& v = Of(s);
      int64_t next = 0;
      Walk(v.dims, strides, base, [&](int64_t offset) { out[offset] = (*v.data)[next++]; });
      base += v.dims[axis] * strides[axis];
    }
    return MakeValue(std::move(dims), std::move(out));
  }

  // Which elements of the base the view shows is found by moving their numbers, from 1, as the
  // view moves the elements; padding shows as 0 and is not written.
  absl::StatusOr<Value> Assign(const UOp& u) {
    const Value& base = Of(u.src(0));
    std::vector<UOp> chain;
    UOp at = u.src(1);
    for (; !(at == u.src(0)); at = at.src(0)) {
      if (!IsMovement(at.op())) return Fail(u, "has a target that is no view of its base");
      chain.push_back(at);
    }
    std::vector<Scalar> numbers(base.data->size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = Scalar::Int(i + 1);
    Value places = MakeValue(base.dims, std::move(numbers));
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      ASSIGN_OR_RETURN(places, Move(*it, places));
    }
    const Value& value = Of(u.src(2));
    if (value.dims != places.dims) return Fail(u, "has a value of another shape than its target");
    std::vector<Scalar> out = *base.data;
    for (size_t i = 0; i < places.data->size(); ++i) {
      const int64_t place = (*places.data)[i].AsInt();
      if (place > 0) out[place - 1] = (*value.data)[i];
    }
    return MakeValue(base.dims, std::move(out));
  }

  absl::StatusOr<Value> Compute(const UOp& u) {
    if (IsRealized(u)) {
      const UOp buffer = u.realized();
      Ints dims;
      for (const Extent& e : u.shape()) {
        if (!e.is_int()) return Fail(u, "is realised with a symbolic shape");
        dims.push_back(e.value());
      }
      if (HasParts(buffer)) {
        ASSIGN_OR_RETURN(const std::vector<uint8_t> joined,
                         Joined(buffer, *buffer.arg<BufferArg>().buffer->storage));
        return FromBytes(u, joined.data(), std::move(dims));
      }
      return FromBytes(u, StorageOf(buffer), std::move(dims));
    }
    switch (Info(u.op()).cls) {
      case OpClass::kLeaf:
        return Leaf(u);
      case OpClass::kElementwise:
        return Elementwise(u);
      case OpClass::kMovement:
        return Move(u, Of(u.src(0)));
      case OpClass::kReduce:
        if (u.size() > 1) return Fail(u, "is part of a kernel");
        return Reduced(u, Of(u.src(0)));
      case OpClass::kData:
        if (u.is(Op::kGather)) return Gathered(u, Of(u.src(0)), Of(u.src(1)));
        if (u.is(Op::kScatter)) {
          return Scattered(u, Of(u.src(0)), Of(u.src(1)), Of(u.src(2)));
        }
        if (u.is(Op::kCat)) return Cat(u);
        if (u.is(Op::kMStack)) return Stack(u);
        if (u.is(Op::kMSelect)) return Selected(u);
        if (u.is(Op::kExchange) || u.is(Op::kRan)) return Fail(u, "is made by the scheduler");
        if (u.is(Op::kResult)) return looped_.at(u.src(0).get())[NumberOfResult(u)];
        if (u.is(Op::kLocal) || u.is(Op::kGlobal) || u.is(Op::kPass)) {
          return Fail(u, "is of what each place has as its own");  // WithoutPrograms leaves none
        }
        if (u.is(Op::kAssign)) return IsOverwrite(u) ? Of(u.src(2)) : Assign(u);
        return Of(u.src(
            0));  // COPY, CONTIGUOUS, MARK, STANDIN, and ALLREDUCE: the REDUCE below was of all
      case OpClass::kKernel:
      case OpClass::kProgram:
        break;
    }
    return Fail(u, "is not an op of tensors");
  }

  const EvaluateOptions& options_;
  const std::vector<Value>* const items_;
  absl::flat_hash_map<const Node*, std::vector<Value>> looped_;  // by LOOP
  absl::flat_hash_map<const Node*, int64_t> uses_;
  absl::flat_hash_map<const Node*, Value> values_;
};

}  // namespace

double HostArray::AsDouble(int64_t flat) const {
  return Convert(At(flat), dtype, kFloat64).AsFloat();
}

absl::StatusOr<std::vector<HostArray>> Evaluate(absl::Span<const UOp> roots,
                                                const EvaluateOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<UOp> plain, WithoutPrograms(roots, options.stop_at_realized));
  return Evaluator(options).Run(plain);
}

}  // namespace tessera
