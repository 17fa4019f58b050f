// Random loops: random functions as a turn, of random tensors, against the same turns written out.
//
// FUZZ_SEED=n tries that seed alone; FUZZ_LOOPS=n tries that many.
#include <cstdlib>

#include "graph/flags.h"
#include "graph/loop.h"
#include "graph/text.h"
#include "graph/unroll.h"
#include "runtime/capture.h"
#include "tests/fuzz/random_tensors.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

// A loop, drawn anew from the seed: of inputs that are passed, or of its own.
struct RandomLoop {
  Tensors carried, sequences;
  LoopOptions options;
  uint64_t turn_seed = 0;
  mutable std::vector<int64_t> left_out;  // by the turns that were written last
  bool nested = false;

  explicit RandomLoop(uint64_t seed) {
    RandomTensors r(seed);
    const int64_t turns = r.Chance(0.1) ? r.Int(0, 1) : r.Int(2, 4);
    options.turns = turns;
    options.backwards = r.Chance(0.3);
    nested = r.Chance(0.15);
    for (int64_t i = r.Int(0, 2); i-- > 0;) carried.push_back(r.Leaf());
    for (int64_t i = r.Int(carried.empty() ? 1 : 0, 2); i-- > 0;) {
      std::vector<int64_t> shape = r.RandomShape(2);
      shape.insert(shape.begin(), turns);
      sequences.push_back(r.LeafOf(r.AnyType(), shape));
    }
    turn_seed = r.rng()();
  }

  // The same draws whenever it is called; the first `n` are carried.
  Tensors Turn(const Tensors& in, size_t n, bool may_nest) const {
    RandomTensors r(turn_seed);
    Tensors pool = in;
    pool.push_back(r.Leaf());
    pool.push_back(r.Counter());
    if (nested && may_nest) {
      const Tensor& rows = pool[r.Int(0, static_cast<int64_t>(in.size()) - 1)];
      if (rows.rank() > 0) {
        const auto inner = [&](const Tensors& given) { return Turn(given, 1, false); };
        for (const Tensor& t : Loop(inner, {pool.back() * 2}, {rows}).stacked) pool.push_back(t);
      }
    }
    for (int64_t i = r.Int(1, 6); i-- > 0;) {
      const Tensor a = pool[r.Int(0, static_cast<int64_t>(pool.size()) - 1)];
      const Tensor b = pool[r.Int(0, static_cast<int64_t>(pool.size()) - 1)];
      Tensor made;
      try {
        switch (r.Int(0, 7)) {
          case 0:
            made = r.Unary(a);
            break;
          case 1:
          case 2:
            made = r.Binary(a, b);
            break;
          case 3:
            made = r.Moved(a);
            break;
          case 4:
            made = r.Reduced(a);
            break;
          case 5:
            made = r.CastAround(a);
            break;
          default:
            made = r.Composed(a);
        }
      } catch (const Error&) {
        left_out.push_back(i);  // what does not fit
        continue;
      }
      if (made && made.shape().is_static() && made.elements() < 4096) pool.push_back(made);
    }
    Tensors out;
    for (size_t c = 0; c < n; ++c) {
      Tensor next;
      for (size_t k = pool.size(); k-- > 0 && !next;) {
        const bool fits = pool[k].shape() == in[c].shape() && pool[k].dtype() == in[c].dtype();
        if (fits && r.Chance(0.5)) next = pool[k];
      }
      if (!next) next = Where(pool.back().Sum().Cast(kFloat32) > 0, in[c], in[c].Flip(Axes()));
      out.push_back(next);
    }
    out.push_back(pool.back());
    out.push_back(pool[pool.size() / 2]);
    return out;
  }

  Tensors Run(const Tensors& in) const {
    const auto n = static_cast<std::ptrdiff_t>(carried.size());
    left_out.clear();
    const auto turn = [&](const Tensors& given) { return Turn(given, carried.size(), true); };
    const Looped l =
        Loop(turn, Tensors(in.begin(), in.begin() + n), Tensors(in.begin() + n, in.end()), options);
    Tensors out = l.carried;
    out.insert(out.end(), l.stacked.begin(), l.stacked.end());
    return out;
  }
};

// "" where all ways to run it agree.
std::string RunLoop(uint64_t seed) {
  const RandomLoop loop(seed);
  Tensors in = loop.carried;
  in.insert(in.end(), loop.sequences.begin(), loop.sequences.end());
  Tensor::ManualSeed(seed);
  Tensors results = loop.Run(in);
  std::vector<UOp> roots;
  for (const Tensor& t : results) roots.push_back(t.uop());
  const auto written = WithoutLoops(roots, false);
  if (!written.ok()) return written.status().ToString();
  const auto want = EvaluateWithBounds(*written);
  if (!want.ok()) return want.status().ToString();
  const auto of_loops = Evaluate(roots);
  if (!of_loops.ok()) return of_loops.status().ToString();
  Jit step([&](const Tensors& given) { return loop.Run(given); });
  const auto replayed = [&] {  // with the same random numbers
    Tensor::ManualSeed(seed);
    return step(in);
  };
  // What cannot be captured is left out of a turn, which is another one then.
  const std::vector<int64_t> left_out = loop.left_out;
  const Tensors captured = replayed(), again = replayed();
  const bool same = loop.left_out == left_out;
  Tensor::Realize(absl::MakeSpan(results));
  for (size_t i = 0; i < roots.size(); ++i) {
    if ((*of_loops)[i].bytes != (*want)[i].value.bytes) {
      return "the evaluator's loop is not its turns, result " + std::to_string(i);
    }
    const auto differs = [&](const Tensor& got, const std::string& how) -> std::string {
      const bool alike = got.shape() == results[i].shape() && got.dtype() == results[i].dtype();
      if (how != "eager" && !(same && alike)) return "";
      const std::string what = Difference(ReadBuffer(got.uop()), (*want)[i]);
      return what.empty() ? what : how + ", result " + std::to_string(i) + ": " + what;
    };
    for (const std::string& what : {differs(results[i], "eager"), differs(captured[i], "captured"),
                                    differs(again[i], "again")}) {
      if (!what.empty()) return what + "\n" + Print({&roots[i], 1});
    }
  }
  return "";
}

void TrySeeds(uint64_t first, int64_t count) {
  int failures = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count) && failures < 3; ++seed) {
    std::string failure;
    try {
      failure = RunLoop(seed);
    } catch (const Error& error) {
      failure = error.what();
    }
    if (failure.empty()) continue;
    if (const std::string fault = TextFlag(Flag::kFault); !fault.empty()) {
      ADD_FAILURE() << "FAULT=" << fault << " found by values in loop " << seed - first + 1
                    << ", FUZZ_SEED=" << seed << "\n"
                    << failure;
      return;
    }
    ++failures;
    ADD_FAILURE() << "FUZZ_SEED=" << seed << "\n" << failure;
  }
}

TEST(LoopFuzz, Few) {
  if (const char* seed = std::getenv("FUZZ_SEED")) return TrySeeds(std::stoull(seed), 1);
  TrySeeds(1, 150);
}

TEST(LoopFuzz, ManyLong) {
  const char* count = std::getenv("FUZZ_LOOPS");
  TrySeeds(std::random_device()() * uint64_t{1000}, count != nullptr ? std::stoll(count) : 2000);
}

}  // namespace
}  // namespace tessera
