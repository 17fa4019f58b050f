// Random tensor graphs for the fuzz tests of the text form and the validator, and a small stack to
// run them on.
#pragma once

#include <pthread.h>

#include <functional>
#include <random>
#include <vector>

#include "graph/box.h"
#include "graph/buffer.h"
#include "graph/uop.h"

namespace tessera {

// Runs fn on a thread with a stack of 256 KiB.
inline void OnSmallStack(std::function<void()> fn) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 256 << 10);
  pthread_t thread;
  pthread_create(
      &thread, &attr,
      [](void* f) -> void* {
        (*static_cast<std::function<void()>*>(f))();
        return nullptr;
      },
      &fn);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attr);
}

// A random argument for an op over these sources: nearly always of the right kind, often one that
// fits. Ops that need the impossible are simply refused by TryMake.
inline Arg RandomArg(Op op, absl::Span<const UOp> srcs, std::mt19937& rng) {
  const auto pick = [&rng](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(rng);
  };
  const Shape shape = srcs.empty() ? Shape{4, 6} : srcs[0].shape();
  switch (Info(op).arg) {
    case ArgKind::kNone:
      return Arg();
    case ArgKind::kScalar:
      return Scalar::Int(pick(0, 1));
    case ArgKind::kVar:
      return VarArg{pick(0, 1) ? "n" : "start pos", 0, pick(1, 9)};
    case ArgKind::kBuffer:
      return BufferArg{std::make_shared<Buffer>(), {2, 3}, Device(Place("CPU", 0))};
    case ArgKind::kParam:
      return ParamArg{pick(0, 3), {2, 3}, Device(Place("CPU", 0))};
    case ArgKind::kExtents: {
      Extents e = shape.ToExtents();
      for (Extent& x : e) {
        if (x.is_int(1)) x = pick(1, 3);
      }
      if (op == Op::kReshape) std::reverse(e.begin(), e.end());
      if (op == Op::kIota) e = {pick(0, 5)};
      return e;
    }
    case ArgKind::kInts: {
      Ints axes;
      for (int i = 0; i < shape.rank(); ++i) axes.push_back(i);
      std::shuffle(axes.begin(), axes.end(), rng);
      if (op == Op::kFlip && !axes.empty()) axes.pop_back();
      return axes;
    }
    case ArgKind::kPairs: {
      Pairs p;
      for (const Extent& e : shape) {
        if (op == Op::kShrink) {
          p.emplace_back(0, e);
        } else {
          p.emplace_back(pick(0, 1), pick(0, 2));
        }
      }
      return p;
    }
    case ArgKind::kWindow: {
      if (shape.rank() == 0) return WindowArg{};
      return WindowArg{{pick(0, shape.rank() - 1)}, {pick(1, 2)}, {pick(1, 2)}, {1}};
    }
    case ArgKind::kReduce: {
      const Op ops[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin, Op::kOr};
      ReduceArg r{ops[pick(0, 4)], {}};
      if (shape.rank() > 0) r.axes = {pick(0, shape.rank() - 1)};
      return r;
    }
    case ArgKind::kInt:
      return pick(0, 1);
    case ArgKind::kDevice:
      return Device(Place("CPU", static_cast<int>(pick(0, 1))));
    case ArgKind::kRange:
      return RangeArg{pick(0, 5), static_cast<RangeKind>(pick(0, 1))};
    case ArgKind::kStage:
      return StageArg{pick(0, 5), Space::kShared, pick(0, 2)};
    case ArgKind::kString:
      return std::string("a \"name\"; of\n");
    case ArgKind::kExchange: {
      const auto boxes = [&shape](int place) {
        return std::make_shared<const Boxes>(BoxesOf(shape, Device(Place("CPU", place))));
      };
      ExchangeArg x{boxes(0), boxes(1), shape.ToExtents()};
      if (pick(0, 1) == 1) x.over = {0};
      return x;
    }
  }
  return Arg();
}

// A graph of about n nodes of the ops that `wanted` accepts, as its unused nodes.
inline std::vector<UOp> RandomGraph(int n, std::mt19937& rng, bool (*wanted)(Op)) {
  const DType types[] = {kFloat32, kInt64, kBool, kFloat16, kUInt8, kInt32, kUInt64};
  std::vector<UOp> nodes = {UOp::Make(Op::kVar, kInt64, {}, VarArg{"rows", 1, 8})};
  const Extent rows(nodes[0]);
  for (int i = 0; i < 4; ++i) {
    const Device cpu(Place("CPU", 0));
    const Extents shape = i == 3 ? Extents{rows, 3} : Extents{2, 3};
    nodes.push_back(UOp::Make(Op::kBuffer, types[i % 3], {},
                              BufferArg{std::make_shared<Buffer>(), shape, cpu}));
  }
  std::vector<bool> used(nodes.size());
  while (static_cast<int>(nodes.size()) < n) {
    const Op op = static_cast<Op>(rng() % kOpCount);
    if (!wanted(op)) continue;
    const int arity = Info(op).arity < 0 ? 1 + rng() % 3 : Info(op).arity;
    std::vector<size_t> from;
    std::vector<UOp> srcs;
    for (int i = 0; i < arity; ++i) {
      // Mostly one source over and over, so that types and shapes agree.
      from.push_back(i == 0 || rng() % 3 == 0 ? rng() % nodes.size() : from[0]);
      srcs.push_back(nodes[from[i]]);
    }
    const DType type = types[rng() % 7];
    Arg arg = RandomArg(op, srcs, rng);
    if (op == Op::kConst) arg = Convert(std::get<Scalar>(arg.value), kInt64, type);
    auto made = UOp::TryMake(op, type, srcs, std::move(arg));
    if (!made.ok() || made->shape().MaxElements() > 10000) continue;
    for (size_t i : from) used[i] = true;
    nodes.push_back(*std::move(made));
    used.push_back(false);
  }
  std::vector<UOp> roots;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!used[i]) roots.push_back(nodes[i]);
  }
  return roots;
}

}  // namespace tessera
